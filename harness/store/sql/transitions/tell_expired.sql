-- The reason, where the API shows it, of tasks that a claim has just expired. A statement of its own: a claim is hot, and
-- expires next to nothing. Lost with its process between the two, the reason still stands in the trace.
-- Returns: nothing. Needs: task_body_pkey. Parameters: tasks.
UPDATE task_body SET error = '{"class": "expired", "message": "expired before it could start"}'
WHERE task_id = ANY(%(tasks)s) AND error IS NULL
