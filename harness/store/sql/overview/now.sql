-- The engine at one glance, as one JSON object. For people: run at most a few times a second.
-- Needs: small tables; task_live for the backlog (cost: live tasks). Parameters: dead_after_s, since_id (tasks from there).
SELECT json_build_object(
    'slots', (SELECT coalesce(json_object_agg(pool, n), '{}') FROM (
        SELECT p.key AS pool, sum(p.value::integer) AS n FROM worker_session s, jsonb_each_text(s.pools) p
        WHERE s.ended_at IS NULL AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
        GROUP BY 1) x),
    'in_flight', (SELECT coalesce(json_object_agg(pool, n), '{}') FROM (
        SELECT pool, count(*) AS n FROM lease GROUP BY 1) x),
    'backlog', (SELECT coalesce(json_object_agg(priority, n), '{}') FROM (
        SELECT priority, count(*) AS n FROM task
        WHERE finished_at IS NULL AND state <> 'running' GROUP BY 1) x),
    'tenants', (SELECT coalesce(json_object_agg(name, states), '{}') FROM (
        SELECT tenant.name, json_object_agg(t.state, t.n) AS states FROM (
            SELECT tenant_id, state, count(*) AS n FROM task WHERE id >= %(since_id)s GROUP BY 1, 2) t
        JOIN tenant ON tenant.id = t.tenant_id GROUP BY 1) x),
    'states', (SELECT coalesce(json_object_agg(state, n), '{}') FROM (
        SELECT state, count(*) AS n FROM task WHERE id >= %(since_id)s GROUP BY 1) x))
