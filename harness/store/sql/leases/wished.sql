-- The leases of a session on which a task runs that someone wants stopped. Returns: lease id, pid.
-- Needs: nothing on lease (few rows); lease_member_of_lease, task_pkey. Parameters: session.
SELECT DISTINCT l.id, l.pid FROM lease l JOIN lease_member m ON m.lease_id = l.id
CROSS JOIN LATERAL (SELECT want FROM task WHERE id = m.task_id AND release_no = m.release_no AND state = 'running') t
WHERE l.session = %(session)s AND l.claimed_at IS NOT NULL AND t.want IS NOT NULL
