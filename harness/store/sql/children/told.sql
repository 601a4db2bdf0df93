-- The reason, where the API shows it, of tasks that were cancelled because of another. Returns: nothing.
-- Needs: task_body_pkey, task_pkey. Parameters: tasks, class, message.
UPDATE task_body SET error = jsonb_build_object('class', %(class)s::text, 'message', %(message)s::text)
FROM task t WHERE t.id = task_body.task_id AND t.state = 'cancelled'
  AND task_body.task_id = ANY(%(tasks)s::bigint[]) AND task_body.error IS NULL
