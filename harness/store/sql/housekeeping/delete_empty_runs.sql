-- Delete runs born before a time that have no task any more. Returns: how many; after which id to look on (null: at the end).
-- Needs: run_pkey, task_of_run. Locks: the rows. Parameters: before, after (id), limit.
WITH looked AS MATERIALIZED (
    SELECT id, created_at FROM run WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
),
gone AS (
    DELETE FROM run USING looked WHERE run.id = looked.id AND looked.created_at < %(before)s
        AND NOT EXISTS (SELECT FROM task t WHERE t.run_id = run.id AND t.run_id <> 0)
    RETURNING run.id
)
SELECT (SELECT count(*) FROM gone)::integer,
       CASE WHEN count(*) = %(limit)s AND min(created_at) < %(before)s THEN max(id) END
FROM looked
