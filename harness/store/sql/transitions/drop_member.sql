-- Take a task off its lease, and the lease away with its last member; the task itself is left as it is.
-- The caller holds the locks (lock_lease_of_one, then lock_one). Returns: lease id.
-- Needs: lease_member_pkey, lease_member_of_lease, lease_pkey. Parameters: task.
WITH m AS (
    DELETE FROM lease_member WHERE task_id = %(task)s RETURNING lease_id
),
z AS (
    DELETE FROM lease USING m WHERE lease.id = m.lease_id AND lease.zombie_since IS NULL
        AND (SELECT o.task_id FROM lease_member o WHERE o.lease_id = m.lease_id AND o.task_id <> %(task)s LIMIT 1) IS NULL
)
SELECT lease_id FROM m
