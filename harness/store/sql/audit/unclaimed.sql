-- Leases that wait for a worker, and the slots that live sessions offer. Returns: pool that runs them, leases, slots.
-- Needs: nothing on lease and worker_session (few rows). Locks: nothing. Parameters: none.
SELECT pool, sum(unclaimed)::integer, sum(slots)::integer FROM (
    SELECT coalesce(via, pool) AS pool, count(*) AS unclaimed, 0 AS slots FROM lease WHERE claimed_at IS NULL GROUP BY 1
    UNION ALL
    SELECT p.key, 0, sum(p.value::integer) FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) p
    WHERE s.ended_at IS NULL GROUP BY p.key) x
GROUP BY pool
