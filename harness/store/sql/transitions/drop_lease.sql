-- Take away a lease that has no member. The caller holds its lock. Returns: lease id.
-- Needs: lease_pkey, lease_member_of_lease. Parameters: lease.
DELETE FROM lease WHERE id = %(lease)s
    AND (SELECT m.task_id FROM lease_member m WHERE m.lease_id = %(lease)s LIMIT 1) IS NULL
RETURNING id
