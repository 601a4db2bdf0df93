-- The leases that these tasks are on. Returns: task id, lease id. Needs: lease_member_pkey. Parameters: tasks.
SELECT task_id, lease_id FROM lease_member WHERE task_id = ANY(%(tasks)s::bigint[])
