-- Write what moved in the leader's memory without a release; and, once a second, what goes with none.
-- Clocks and credits are written as they are, and the charges that moved them go in the same commit: each counts once.
-- An estimate that somebody has locked stays as it is: a forgotten transaction must not keep the leader waiting.
-- Returns: whether it was done (not under another epoch). Needs: clock_pkey, class_credit_pkey, charge_pkey, flow_pkey,
-- estimate_pkey. Locks: leader (share), then rows that only a leader changes.
-- Parameters: epoch; clocks, credits (jsonb arrays); charges (ids); known (flow ids); forgotten (jsonb array of clock keys);
-- used (jsonb array: kind, n, mean_s), weight (of one task in the moving mean of its kind).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE
),
clocks AS (
    INSERT INTO clock (pool, priority, tenant_id, run_id, v, g, at_s)
    SELECT pool, priority, tenant, run, v, g, at_s
    FROM jsonb_to_recordset(%(clocks)s::jsonb) AS x(
        pool text, priority smallint, tenant integer, run bigint, v double precision, g double precision,
        at_s double precision)
    WHERE EXISTS (SELECT FROM fence)
    ON CONFLICT (pool, priority, tenant_id, run_id) DO UPDATE SET v = excluded.v, g = excluded.g, at_s = excluded.at_s
),
credits AS (
    INSERT INTO class_credit (pool, lane, credit_s, est_s, mean_s, square_s, v, at_s)
    SELECT pool, lane, credit_s, est_s, mean_s, square_s, v, at_s
    FROM jsonb_to_recordset(%(credits)s::jsonb) AS x(
        pool text, lane smallint, credit_s double precision, est_s double precision, mean_s double precision,
        square_s double precision, v double precision, at_s double precision)
    WHERE EXISTS (SELECT FROM fence)
    ON CONFLICT (pool, lane) DO UPDATE SET credit_s = excluded.credit_s, est_s = excluded.est_s,
        mean_s = excluded.mean_s, square_s = excluded.square_s, v = excluded.v, at_s = excluded.at_s
),
charged AS (
    DELETE FROM charge WHERE id = ANY(%(charges)s::bigint[]) AND EXISTS (SELECT FROM fence)
),
k AS (
    UPDATE flow SET known = true WHERE id = ANY(%(known)s::bigint[]) AND EXISTS (SELECT FROM fence)
),
gone AS (
    DELETE FROM clock USING jsonb_to_recordset(%(forgotten)s::jsonb) AS x(
        pool text, priority smallint, tenant integer, run bigint)
    WHERE clock.pool = x.pool AND clock.priority = x.priority AND clock.tenant_id = x.tenant AND clock.run_id = x.run
      AND EXISTS (SELECT FROM fence)
),
used AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(used)s::jsonb) AS x(kind text, n integer, mean_s double precision)
    WHERE EXISTS (SELECT FROM fence)
),
free AS MATERIALIZED (
    SELECT e.kind, used.n, used.mean_s FROM used CROSS JOIN LATERAL (
        SELECT kind FROM estimate WHERE kind = used.kind FOR UPDATE SKIP LOCKED) e
),
e AS (
    UPDATE estimate SET mean_s = estimate.mean_s + (free.mean_s - estimate.mean_s)
        * (1 - power(1 - %(weight)s::double precision, least(100, free.n)))
    FROM free WHERE estimate.kind = free.kind
),
i AS (
    INSERT INTO estimate (kind, mean_s)
    SELECT kind, mean_s FROM used WHERE NOT EXISTS (SELECT FROM estimate WHERE estimate.kind = used.kind)
    ON CONFLICT (kind) DO NOTHING
)
SELECT EXISTS (SELECT FROM fence)
