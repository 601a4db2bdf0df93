-- Lock a lease and see its members. Returns: task id of each member (none: a row with null), no row: the lease is gone.
-- Needs: lease_pkey, lease_member_of_lease. Locks: the lease. Parameters: lease.
SELECT m.task_id FROM (SELECT id FROM lease WHERE id = %(lease)s FOR UPDATE) l
LEFT JOIN lease_member m ON m.lease_id = l.id ORDER BY m.task_id
