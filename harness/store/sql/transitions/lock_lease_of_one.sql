-- Lock the lease that one task is on, if there is such a lease. Returns: lease id.
-- Needs: lease_member_pkey, lease_pkey. Locks: the lease. Parameters: task.
SELECT l.id FROM lease_member m JOIN lease l ON l.id = m.lease_id WHERE m.task_id = %(task)s FOR UPDATE OF l
