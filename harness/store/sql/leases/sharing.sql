-- How many processes call what the processes of this session call: those of live sessions that serve one of its pools.
-- Returns: one number. A session without a place is prefork's: its children, one a slot. Needs: nothing (a scan of few
-- rows). Locks: none. Parameters: session, dead_after_s.
SELECT coalesce(sum(CASE WHEN s.place IS NULL
                         THEN (SELECT sum(n::integer) FROM jsonb_each_text(s.pools) AS p(pool, n) WHERE mine.pools ? p.pool)
                         ELSE 1 END), 1)::integer
FROM worker_session mine
JOIN worker_session s ON s.pools ?| ARRAY(SELECT jsonb_object_keys(mine.pools))
WHERE mine.uuid = %(session)s AND s.ended_at IS NULL
  AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
