-- The worker processes that live, oldest first.
-- Returns: host, pid, pools (jsonb), connections, waits (jsonb), draining. Needs: nothing (few rows).
-- Parameters: dead_after_s.
SELECT host, pid, pools, connections, waits, draining
FROM worker_session
WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
ORDER BY started_at, uuid
