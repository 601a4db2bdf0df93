-- The slots of live, undrained sessions, per pool. Returns: pool, slots.
-- Needs: nothing (a scan: one row a worker process). Parameters: dead_after_s.
SELECT pool.key, sum(pool.value::integer)::integer
FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) AS pool(key, value)
WHERE s.ended_at IS NULL AND NOT s.draining AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
GROUP BY pool.key
