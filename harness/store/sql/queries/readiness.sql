-- Whether work can go on: does a dispatcher lead, and how many worker processes live?
-- Returns: leading, live sessions, those of them that take new work. Needs: a scan of worker_session (a row a process).
-- Parameters: dead_after_s.
SELECT coalesce((SELECT until > clock_timestamp() FROM leader WHERE id = 1), false),
       count(*)::integer, count(*) FILTER (WHERE NOT draining)::integer
FROM worker_session
WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
