-- Note that the code of a running task doesn't match this step of it: until a worker starts after now, the task isn't tried
-- again (transitions/resume_version). Returns: nothing. Needs: step_pkey, task_pkey. Locks: the step's row.
-- Parameters: task, release_no, ordinal.
UPDATE step SET differed_at = clock_timestamp()
WHERE task_id = %(task)s AND ordinal = %(ordinal)s
  AND EXISTS (SELECT FROM task t WHERE t.id = %(task)s AND t.release_no = %(release_no)s AND t.state = 'running')
