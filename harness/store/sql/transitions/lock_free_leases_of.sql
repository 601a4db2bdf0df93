-- Lock those of the leases that these tasks are on that nobody has locked. Returns: lease id.
-- Needs: lease_member_pkey, lease_pkey. Locks: leases by id, none that it would have to wait for. Parameters: tasks.
SELECT l.id FROM (
    SELECT DISTINCT lease_id FROM lease_member WHERE task_id = ANY(%(tasks)s::bigint[]) ORDER BY lease_id
) m CROSS JOIN LATERAL (SELECT id FROM lease WHERE id = m.lease_id FOR UPDATE SKIP LOCKED) l
