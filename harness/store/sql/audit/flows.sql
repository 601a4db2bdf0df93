-- The next flows that ready tasks need, by a loose scan from a key on (the key itself included): those without a row.
-- A flow deleted while a long transaction counted on it comes back within 65 s (ADR 0005): hence the late second look.
-- Returns: rule, subject, null, tenant, facts (its key) of each, then a row without a rule and with the last key in facts.
-- Needs: task_head (5 to 7 us a flow), flow_once. Locks: nothing.
-- Parameters: pool, priority, tenant, run, signature (the key), limit.
WITH RECURSIVE f AS (
    (SELECT pool, priority, tenant_id, run_id, signature, 1 AS n FROM task
     WHERE ready AND (pool, priority, tenant_id, run_id, signature)
           >= (%(pool)s::text, %(priority)s::smallint, %(tenant)s::integer, %(run)s::bigint, %(signature)s::text)
     ORDER BY pool, priority, tenant_id, run_id, signature LIMIT 1)
    UNION ALL
    SELECT next.*, f.n + 1 FROM f CROSS JOIN LATERAL (
        SELECT t.pool, t.priority, t.tenant_id, t.run_id, t.signature FROM task t
        WHERE ready AND (t.pool, t.priority, t.tenant_id, t.run_id, t.signature)
              > (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
        ORDER BY t.pool, t.priority, t.tenant_id, t.run_id, t.signature LIMIT 1) next
    WHERE f.n < %(limit)s
),
keyed AS MATERIALIZED (
    SELECT f.*, jsonb_build_array(pool, priority, tenant_id, run_id, signature) AS key FROM f
)
(SELECT 'flow_missing', 'flow ' || key::text, NULL::bigint, tenant_id, jsonb_build_object('key', key)
 FROM keyed k
 WHERE (SELECT o.id FROM flow o WHERE o.pool = k.pool AND o.priority = k.priority AND o.tenant_id = k.tenant_id
        AND o.run_id = k.run_id AND o.signature = k.signature) IS NULL
 ORDER BY n)
UNION ALL
(SELECT NULL, NULL, NULL::bigint, NULL::integer, jsonb_build_object('key', key) FROM keyed WHERE n >= %(limit)s)
