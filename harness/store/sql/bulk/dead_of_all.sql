-- The dead letters of all tenants that a bulk verb is about, by id. Returns: id, state. Needs: task_dead_of_all.
-- Materialised: see of_tenant. Parameters: as of_run.
WITH found AS MATERIALIZED (
    SELECT id, state FROM task
    WHERE dead_at > '-infinity' AND id > %(after)s
      AND (%(state)s::text IS NULL OR state = %(state)s) AND (%(kind)s::text IS NULL OR kind = %(kind)s)
      AND (%(pool)s::text IS NULL OR pool = %(pool)s)
      AND (%(priority)s::smallint IS NULL OR priority = %(priority)s::smallint)
)
SELECT id, state FROM found ORDER BY id LIMIT %(most)s
