-- The lease that one task is on, whether there is such a lease or not. Returns: lease id.
-- Needs: lease_member_pkey. Parameters: task.
SELECT lease_id FROM lease_member WHERE task_id = %(task)s
