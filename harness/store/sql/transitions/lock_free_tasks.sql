-- Lock those of these tasks that nobody has locked, and see where they stand. Returns: as lock_tasks.
-- Needs: task_pkey. Locks: tasks by id, none that it would have to wait for. Parameters: tasks.
SELECT t.id, t.state, t.want, t.holds, t.priority, t.not_before IS NOT NULL
FROM (SELECT DISTINCT unnest(%(tasks)s::bigint[]) AS id ORDER BY id) q
CROSS JOIN LATERAL (SELECT * FROM task WHERE id = q.id FOR UPDATE SKIP LOCKED) t
