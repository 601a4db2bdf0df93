-- One full, loose scan of the ready tasks for flows that are missing: for a new leader and the auditor.
-- Returns: how many were missing. Needs: task_head (5 to 7 us a flow). Locks: the new rows.
WITH RECURSIVE f AS (
    (SELECT pool, priority, tenant_id, run_id, signature FROM task WHERE ready
     ORDER BY pool, priority, tenant_id, run_id, signature LIMIT 1)
    UNION ALL
    SELECT n.* FROM f CROSS JOIN LATERAL (
        SELECT t.pool, t.priority, t.tenant_id, t.run_id, t.signature FROM task t
        WHERE ready AND (t.pool, t.priority, t.tenant_id, t.run_id, t.signature)
              > (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
        ORDER BY t.pool, t.priority, t.tenant_id, t.run_id, t.signature LIMIT 1) n
),
i AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature) SELECT * FROM f
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
    RETURNING 1
)
SELECT count(*) FROM i
