-- The tasks of a tenant with a mark that a bulk verb is about, by id. Returns: id, state.
-- Needs: task_term_once (tenant_id, term, task_id), task_pkey. Parameters: tenant, term; run (id, or null); else as of_run.
SELECT task.id, task.state FROM task_term JOIN task ON task.id = task_term.task_id
WHERE task_term.tenant_id = %(tenant)s AND task_term.term = %(term)s AND task_term.task_id > %(after)s
  AND (task.finished_at IS NULL) = %(live)s
  AND (%(run)s::bigint IS NULL OR task.run_id = %(run)s)
  AND (%(state)s::text IS NULL OR task.state = %(state)s) AND (%(kind)s::text IS NULL OR task.kind = %(kind)s)
  AND (%(pool)s::text IS NULL OR task.pool = %(pool)s)
  AND (%(priority)s::smallint IS NULL OR task.priority = %(priority)s::smallint)
ORDER BY task_term.task_id LIMIT %(most)s
