-- The unfinished tasks of a run after one, in order. Returns: task id, priority. Needs: task_of_run.
-- Parameters: run (id), after (task id), most.
SELECT id, priority FROM task
WHERE run_id = %(run)s AND run_id <> 0 AND id > %(after)s AND finished_at IS NULL
ORDER BY id LIMIT %(most)s
