-- Look again at keys of deleted flows: ON CONFLICT DO NOTHING may have seen a row that was being deleted.
-- Returns: how many flows were missing. Needs: task_head, flow_once. Parameters: keys (jsonb array of arrays).
WITH k AS (
    SELECT (x ->> 0) AS pool, (x ->> 1)::smallint AS priority, (x ->> 2)::integer AS tenant_id, (x ->> 3)::bigint AS run_id,
           (x ->> 4) AS signature
    FROM jsonb_array_elements(%(keys)s::jsonb) x
),
i AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT * FROM k
    WHERE (SELECT t.id FROM task t WHERE t.ready AND t.pool = k.pool AND t.priority = k.priority
           AND t.tenant_id = k.tenant_id AND t.run_id = k.run_id AND t.signature = k.signature LIMIT 1) IS NOT NULL
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM i
