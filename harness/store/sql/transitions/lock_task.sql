-- Lock a task of a tenant and see where it stands. Returns: state, want, lease id it is on (or null).
-- Needs: task_pkey, lease_member_pkey. Locks: the task. Parameters: task.
SELECT t.state, t.want, (SELECT m.lease_id FROM lease_member m WHERE m.task_id = t.id)
FROM task t WHERE t.id = %(task)s FOR UPDATE OF t
