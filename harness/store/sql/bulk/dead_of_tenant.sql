-- The dead letters of a tenant that a bulk verb is about, by id. Returns: id, state. Needs: task_dead.
-- Materialised: see of_tenant. Parameters: tenant; else as of_run.
WITH found AS MATERIALIZED (
    SELECT id, state FROM task
    WHERE tenant_id = %(tenant)s AND dead_at IS NOT NULL AND id > %(after)s
      AND (%(state)s::text IS NULL OR state = %(state)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
      AND (%(pool)s::text IS NULL OR pool = %(pool)s)
      AND (%(priority)s::smallint IS NULL OR priority = %(priority)s::smallint)
)
SELECT id, state FROM found ORDER BY id LIMIT %(most)s
