-- Lock the lease that a task is on, if any. Returns: lease id, whether it was claimed.
-- Needs: lease_member_pkey, lease_pkey. Locks: the lease. Parameters: task.
SELECT l.id, l.claimed_at IS NOT NULL FROM lease_member m JOIN lease l ON l.id = m.lease_id
WHERE m.task_id = %(task)s FOR UPDATE OF l
