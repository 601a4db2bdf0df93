-- Clocks and credits, of tenants that wait or run, and the fan-out caps of runs.
-- Returns: one JSON object: clocks [pool, priority, tenant, run, v, g, at_s], credits [pool, lane, credit_s, est_s, mean_s,
-- square_s, v, at_s], runs [run, fan-out cap, unfinished tasks, as far as they are counted].
-- Needs: clock_pkey, run_pkey, task_of_run. Locks: none. Parameters: tenants, runs (ids), clocks, counted (most).
SELECT json_build_object(
    'clocks', (SELECT coalesce(json_agg(json_build_array(pool, priority, tenant_id, run_id, v, g, at_s)), '[]') FROM (
        SELECT * FROM clock WHERE tenant_id = ANY(%(tenants)s::integer[]) AND (run_id = 0 OR run_id = ANY(%(runs)s::bigint[]))
        LIMIT %(clocks)s) x),
    'credits', (SELECT coalesce(json_agg(json_build_array(pool, lane, credit_s, est_s, mean_s, square_s, v, at_s)), '[]')
                FROM class_credit),
    'runs', (SELECT coalesce(json_agg(json_build_array(run.id, run.fanout_cap, c.n)), '[]')
             FROM run CROSS JOIN LATERAL (
                 SELECT count(*)::integer AS n FROM (
                     SELECT FROM task t WHERE t.run_id = run.id AND t.finished_at IS NULL LIMIT %(counted)s) x) c
             WHERE run.id = ANY(%(runs)s::bigint[])))
