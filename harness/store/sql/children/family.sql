-- In which run a task's children are, and how many tasks were spawned there so far. Returns: run id, number (nulls: none).
-- Needs: task_of_parent, task_of_run. Locks: nothing. Parameters: parent, run (its own; 0: none).
WITH r AS (
    SELECT coalesce(nullif(%(run)s::bigint, 0), (SELECT run_id FROM task WHERE parent_id = %(parent)s LIMIT 1)) AS id
)
SELECT r.id, (SELECT count(*) FROM task t WHERE t.run_id = r.id AND t.run_id <> 0 AND (t.parent_id IS NOT NULL)::integer = 1) FROM r
