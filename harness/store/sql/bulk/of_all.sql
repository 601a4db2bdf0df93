-- The unfinished tasks of all tenants that a bulk verb is about, by id. Returns: id, state.
-- Needs: task_live (all of it). Materialised: see of_tenant. Parameters: as of_run.
WITH found AS MATERIALIZED (
    SELECT id, state FROM task
    WHERE tenant_id > 0 AND finished_at IS NULL AND id > %(after)s
      AND (%(state)s::text IS NULL OR state = %(state)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
      AND (%(pool)s::text IS NULL OR pool = %(pool)s)
      AND (%(priority)s::smallint IS NULL OR priority = %(priority)s::smallint)
)
SELECT id, state FROM found ORDER BY id LIMIT %(most)s
