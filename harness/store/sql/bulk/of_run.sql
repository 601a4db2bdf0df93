-- The tasks of a run that a bulk verb is about, by id. Returns: id, state. Needs: task_of_run.
-- Parameters: run (id), live (unfinished or ended ones), state, kind, pool, priority (or null), after (id), most.
SELECT id, state FROM task
WHERE run_id = %(run)s AND run_id <> 0 AND id > %(after)s AND (finished_at IS NULL) = %(live)s
  AND (%(state)s::text IS NULL OR state = %(state)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
  AND (%(pool)s::text IS NULL OR pool = %(pool)s) AND (%(priority)s::smallint IS NULL OR priority = %(priority)s::smallint)
ORDER BY id LIMIT %(most)s
