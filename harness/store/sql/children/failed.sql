-- What a task depends on, and won't succeed: the first of it. Returns: public id, state, message.
-- Needs: dependency_unmet, task_pkey, task_body_pkey. Locks: nothing. Parameters: task.
SELECT p.public_id, p.state, b.error ->> 'message'
FROM dependency d JOIN task p ON p.id = d.on_id LEFT JOIN task_body b ON b.task_id = p.id
WHERE d.task_id = %(task)s AND NOT d.met AND p.finished_at IS NOT NULL AND p.state <> 'succeeded'
ORDER BY p.id LIMIT 1
