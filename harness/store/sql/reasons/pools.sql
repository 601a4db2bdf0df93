-- Note how pools stand, where it isn't as noted. Nothing happens under another epoch. Returns: how many rows were written.
-- Needs: pool_now_pkey. Locks: the rows that differ. Parameters: epoch; pools, slots, free, tenants (arrays).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s
),
w AS (
    INSERT INTO pool_now (pool, slots, free, tenants, at)
    SELECT q.*, clock_timestamp()
    FROM unnest(%(pools)s::text[], %(slots)s::integer[], %(free)s::integer[], %(tenants)s::integer[])
         AS q(pool, slots, free, tenants)
    WHERE EXISTS (SELECT FROM fence)
    ON CONFLICT (pool) DO UPDATE SET slots = excluded.slots, free = excluded.free, tenants = excluded.tenants, at = excluded.at
    WHERE (pool_now.slots, pool_now.free, pool_now.tenants) <> (excluded.slots, excluded.free, excluded.tenants)
    RETURNING 1
)
SELECT count(*)::integer FROM w
