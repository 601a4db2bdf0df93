-- Leases that this process claimed some time ago, with their members: those that no thread of it knows are leaked. One
-- may have no member any more: all of it had expired when it was claimed, or it was a zombie that couldn't be dropped.
-- Returns: lease id, token, task ids, release numbers (both may be empty).
-- Needs: nothing on lease (few rows); lease_member_of_lease.
-- Parameters: session, pid, older_than_s, known (lease ids).
SELECT l.id, l.token, coalesce(array_agg(m.task_id ORDER BY m.ordinal) FILTER (WHERE m.task_id IS NOT NULL), '{}'),
       coalesce(array_agg(m.release_no ORDER BY m.ordinal) FILTER (WHERE m.task_id IS NOT NULL), '{}')
FROM lease l LEFT JOIN lease_member m ON m.lease_id = l.id
WHERE l.session = %(session)s AND l.pid = %(pid)s
  AND l.claimed_at < clock_timestamp() - make_interval(secs => %(older_than_s)s)
  AND NOT l.id = ANY(%(known)s::bigint[])
GROUP BY l.id, l.token
