-- What is in line, counted: exact, and dear where there is much (100 ms for a million), so it is run seldom then.
-- Returns: one JSON object: ready [pool, priority, tenant, n]; later: tasks that aren't due; held: paused; dead: dead letters.
-- Needs: task_head, task_not_before, task_held, task_dead_of_all, each read alone. Locks: none. Parameters: none.
SELECT json_build_object(
    'ready', (SELECT coalesce(json_agg(json_build_array(pool, priority, tenant_id, n)), '[]') FROM (
        SELECT pool, priority, tenant_id, count(*) AS n FROM task WHERE ready GROUP BY 1, 2, 3) x),
    'later', (SELECT count(*) FROM task WHERE not_before IS NOT NULL),
    'held', (SELECT count(*) FROM task WHERE holds <> '{}'),
    'dead', (SELECT count(*) FROM task WHERE dead_at IS NOT NULL))
