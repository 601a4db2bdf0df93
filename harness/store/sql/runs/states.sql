-- How a run's tasks stand, in order of birth, spawned ones included: a letter each (store.runs), no more than `most`.
-- Returns: the letters; when the last one ended. Needs: task_of_run. Locks: nothing. Parameters: run (id), most.
SELECT coalesce(string_agg(CASE WHEN state = 'failed_retryable' THEN 't' WHEN holds = '{children}' THEN 'k' ELSE left(state, 1) END, '' ORDER BY id), ''),
       max(finished_at)
FROM (SELECT id, state, holds, finished_at FROM task WHERE run_id = %(run)s AND run_id <> 0 ORDER BY id LIMIT %(most)s) AS members
