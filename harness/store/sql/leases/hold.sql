-- Keep a claimed task its worker's until the transaction ends, so that what it wrote counts only while the task is its own:
-- whoever takes tasks back leaves a lease alone that is locked. To be the last statement before the commit.
-- Returns: lease id; no row: the task was taken back, or is settled from outside (a zombie).
-- Needs: lease_pkey, lease_member_pkey. Locks: the lease (share). Parameters: session, lease, token, task, release_no.
SELECT l.id FROM lease l
WHERE l.id = %(lease)s AND l.token = %(token)s AND l.session = %(session)s AND l.zombie_since IS NULL
  AND EXISTS (SELECT FROM lease_member m WHERE m.task_id = %(task)s AND m.release_no = %(release_no)s AND m.lease_id = l.id)
FOR SHARE OF l
