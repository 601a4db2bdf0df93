-- The tasks on leases that were just made. Returns: lease, public id, pool, since when it might run (epoch seconds).
-- Needs: lease_member_of_lease, task_pkey. Locks: none. Parameters: leases (array).
SELECT m.lease_id, t.public_id, t.pool, extract(epoch FROM coalesce(t.ready_at, t.created_at))::double precision
FROM lease_member m
CROSS JOIN LATERAL (SELECT public_id, pool, ready_at, created_at FROM task WHERE id = m.task_id LIMIT 1) t
WHERE m.lease_id = ANY(%(leases)s::bigint[])
