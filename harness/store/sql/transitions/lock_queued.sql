-- Lock those of these tasks that are queued. What is leased is seen by the statement that follows: this one may have
-- waited for a release, and reads lease_member as it was before. Returns: task id, in order.
-- Needs: task_pkey. Locks: tasks by id. Parameters: tasks.
SELECT id FROM task WHERE id = ANY(%(tasks)s::bigint[]) AND state = 'queued' ORDER BY id FOR UPDATE
