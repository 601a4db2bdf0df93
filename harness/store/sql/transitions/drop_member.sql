-- Take a task off its lease, and the lease away with its last member; the task itself is left as it is.
-- What was charged for it at release is given back: nobody knows what it used.
-- The caller holds the locks (lock_lease_of_one, then lock_one). Returns: lease id.
-- Needs: lease_member_pkey, lease_member_of_lease, lease_pkey. Parameters: task.
WITH m AS (
    DELETE FROM lease_member WHERE task_id = %(task)s RETURNING lease_id
),
c AS (
    INSERT INTO charge (lease_id, pool, priority, lane, tenant_id, run_id, kind, n, slot_s, owed_s)
    SELECT l.id, l.pool, l.priority, l.lane, l.tenant_id, l.run_id, l.kind, 0, 0, -m.n * l.est_s * l.cost
    FROM (SELECT lease_id, count(*) AS n FROM m GROUP BY lease_id) m JOIN lease l ON l.id = m.lease_id
),
z AS (
    DELETE FROM lease USING m WHERE lease.id = m.lease_id AND lease.zombie_since IS NULL
        AND (SELECT o.task_id FROM lease_member o WHERE o.lease_id = m.lease_id AND o.task_id <> %(task)s LIMIT 1) IS NULL
)
SELECT lease_id FROM m
