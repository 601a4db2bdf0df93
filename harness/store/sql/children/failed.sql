-- What a task depends on, and won't succeed: the first of it. Returns: public id, state, message.
-- Needs: dependency_unmet, task_pkey, task_body_pkey. Locks: nothing. Parameters: task.
SELECT p.public_id, p.state, b.error ->> 'message'
FROM dependency d
CROSS JOIN LATERAL (SELECT id, public_id, state, finished_at FROM task WHERE id = d.on_id LIMIT 1) p
LEFT JOIN LATERAL (SELECT error FROM task_body WHERE task_id = d.on_id LIMIT 1) b ON true
WHERE d.task_id = %(task)s AND NOT d.met AND p.finished_at IS NOT NULL AND p.state <> 'succeeded'
ORDER BY p.id LIMIT 1
