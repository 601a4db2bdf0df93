-- Whether a task's input is this value. Returns: true or false. Needs: task_body_pkey. Parameters: task, input (jsonb).
SELECT input = %(input)s::jsonb FROM task_body WHERE task_id = %(task)s
