-- How a run's tasks stand, in order of birth, spawned ones included: a letter each (store.runs), no more than `most`.
-- Returns: the letters. Needs: task_of_run. Locks: nothing. Parameters: run (id), most.
SELECT coalesce(string_agg(CASE WHEN state = 'failed_retryable' THEN 't' ELSE left(state, 1) END, '' ORDER BY id), '')
FROM (SELECT id, state FROM task WHERE run_id = %(run)s AND run_id <> 0 ORDER BY id LIMIT %(most)s) AS members
