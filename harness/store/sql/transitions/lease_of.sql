-- The lease that a task is on. Returns: lease id. Needs: lease_member_pkey. Parameters: task.
SELECT lease_id FROM lease_member WHERE task_id = %(task)s
