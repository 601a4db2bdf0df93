-- Make a worker session if the connections of all live sessions and its own stay within the budget.
-- The caller holds the advisory lock harness_sessions. Returns: connections of the others (always), whether it was made,
-- connections of those among the others that have been silent for quiet_s.
-- Needs: nothing (a scan). Parameters: session, host, pid, place, pools, kinds, connections, room, dead_after_s, quiet_s.
WITH others AS (
    SELECT coalesce(sum(connections), 0)::integer AS n,
           coalesce(sum(connections) FILTER (
               WHERE beat_at < clock_timestamp() - make_interval(secs => %(quiet_s)s)), 0)::integer AS silent
    FROM worker_session
    WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
),
i AS (
    INSERT INTO worker_session (uuid, host, pid, place, pools, kinds, connections)
    SELECT %(session)s, %(host)s, %(pid)s, %(place)s, %(pools)s::jsonb, %(kinds)s, %(connections)s FROM others
    WHERE others.n + %(connections)s <= %(room)s
    RETURNING 1
)
SELECT others.n, EXISTS (SELECT FROM i), others.silent FROM others
