-- All that a leader keeps in its memory: every flow (a page of them, by id) and, with the first page, clocks and credits.
-- The flows that there are at the first page are known from then on.
-- Returns: 'flow', pool, priority, tenant, run, signature, id, tenant cap, run cap, weight, since when its first task may
-- run (epoch s; now, if there is none), 1 if the tenant's work may be degraded (else 0) |
-- 'clock', pool, priority, tenant, run, null, null, null, null, v, g, at_s |
-- 'credit', pool, lane, null, null, null, null, null, null, credit_s, est_s, at_s, mean_s, square_s, v.
-- Needs: flow_pkey, tenant_pkey, run_pkey, task_head, flow_unknown; nothing on clock and class_credit (all of them).
-- Locks: leader (share), flow rows that were new. Parameters: epoch, after (flow id; 0: the first page), flows (most).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE
),
k AS (
    UPDATE flow SET known = true WHERE NOT known AND %(after)s = 0 AND EXISTS (SELECT FROM fence)
)
SELECT 'flow' AS what, f.pool, f.priority, f.tenant_id AS tenant, f.run_id AS run, f.signature, f.id, tenant.cap,
       run.fanout_cap AS run_cap, tenant.weight AS x,
       coalesce(h.ready_s, extract(epoch FROM statement_timestamp())::double precision) AS y, tenant.degrade::integer::double precision AS at_s,
       NULL::double precision AS mean_s, NULL::double precision AS square_s, NULL::double precision AS v
FROM (SELECT * FROM flow WHERE id > %(after)s AND EXISTS (SELECT FROM fence) ORDER BY id LIMIT %(flows)s) f
JOIN tenant ON tenant.id = f.tenant_id LEFT JOIN run ON run.id = f.run_id
LEFT JOIN LATERAL (
    SELECT extract(epoch FROM coalesce(ready_at, created_at))::double precision AS ready_s FROM task
    WHERE ready
      AND (pool, priority, tenant_id, run_id, signature) >= (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
      AND (pool, priority, tenant_id, run_id, signature) <= (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
    ORDER BY pool, priority, tenant_id, run_id, signature, id LIMIT 1
) h ON true
UNION ALL
SELECT 'clock', pool, priority, tenant_id, run_id, NULL, NULL, NULL, NULL, v, g, at_s, NULL, NULL, NULL
FROM clock WHERE %(after)s = 0 AND EXISTS (SELECT FROM fence)
UNION ALL
SELECT 'credit', pool, lane, NULL, NULL, NULL, NULL, NULL, NULL, credit_s, est_s, at_s, mean_s, square_s, v
FROM class_credit WHERE %(after)s = 0 AND EXISTS (SELECT FROM fence)
