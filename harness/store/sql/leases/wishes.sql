-- Which of these running tasks someone wants stopped. Returns: task id, want. Needs: task_pkey. Parameters: tasks.
SELECT id, want FROM task WHERE id = ANY(%(tasks)s::bigint[]) AND want IS NOT NULL
