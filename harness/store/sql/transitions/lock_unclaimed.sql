-- Lock a lease that nobody has claimed, unless someone else has it locked. Returns: lease id.
-- Needs: lease_pkey. Locks: the lease. Parameters: lease.
SELECT id FROM lease WHERE id = %(lease)s AND claimed_at IS NULL FOR UPDATE SKIP LOCKED
