-- Delete flows that the leader saw empty, if they still are. Returns: id and key of each deleted (to be looked at again), and
-- the id with nulls of each that is gone already (with its tenant).
-- Needs: flow_pkey, task_head. Locks: leader (share), flow rows. Parameters: epoch, flows (ids).
WITH gone AS (
    DELETE FROM flow f
    WHERE f.id = ANY(%(flows)s::bigint[])
      AND EXISTS (SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE)
      AND (SELECT t.id FROM task t WHERE t.ready AND t.pool = f.pool AND t.priority = f.priority
           AND t.tenant_id = f.tenant_id AND t.run_id = f.run_id AND t.signature = f.signature LIMIT 1) IS NULL
    RETURNING f.id, f.pool, f.priority, f.tenant_id, f.run_id, f.signature
)
SELECT * FROM gone
UNION ALL
SELECT x.id, NULL, NULL, NULL, NULL, NULL FROM unnest(%(flows)s::bigint[]) AS x(id)
WHERE NOT EXISTS (SELECT FROM flow WHERE flow.id = x.id)
