-- Leases that this process claimed some time ago, with their members: those that no thread of it knows are leaked.
-- Returns: lease id, token, task ids, release numbers. Needs: nothing on lease (few rows); lease_member_of_lease.
-- Parameters: session, pid, older_than_s, known (lease ids).
SELECT l.id, l.token, array_agg(m.task_id ORDER BY m.ordinal), array_agg(m.release_no ORDER BY m.ordinal)
FROM lease l JOIN lease_member m ON m.lease_id = l.id
WHERE l.session = %(session)s AND l.pid = %(pid)s
  AND l.claimed_at < clock_timestamp() - make_interval(secs => %(older_than_s)s)
  AND NOT l.id = ANY(%(known)s::bigint[])
GROUP BY l.id, l.token
