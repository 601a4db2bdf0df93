-- How things stand now, of what is small. Moments in epoch seconds.
-- Returns: one JSON object: oldest [pool, priority, since], the head of each class; slots [pool, n]; held [pool, leases, claimed,
-- members, zombies]; of_tenants [tenant, members]; resources [name, limit, in flight, waiting, breaker, seen]; level [level, seen,
-- readings]; forecasts [at, took_s, calibration]; findings [rule, level, n]; asked, questions that are open;
-- told [session, totals], of worker processes that live, or did `from_s`.
-- Needs: task_head, approval_open; nothing on worker_session, lease, lease_member, flow, audit_finding, resource_state (small).
-- Locks: none. Parameters: flows (most), dead_after_s, from_s.
WITH session AS MATERIALIZED (
    SELECT pools, draining FROM worker_session
    WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
)
SELECT json_build_object(
    'oldest', (SELECT coalesce(json_agg(json_build_array(pool, priority, since)), '[]') FROM (
        SELECT f.pool, f.priority, min(extract(epoch FROM h.since))::double precision AS since
        FROM (SELECT * FROM flow ORDER BY id LIMIT %(flows)s) f
        CROSS JOIN LATERAL (
            SELECT coalesce(ready_at, created_at) AS since FROM task t
            WHERE t.ready AND t.pool = f.pool AND t.priority = f.priority AND t.tenant_id = f.tenant_id
              AND t.run_id = f.run_id AND t.signature = f.signature ORDER BY t.id LIMIT 1) h
        GROUP BY 1, 2) x),
    'slots', (SELECT coalesce(json_agg(json_build_array(pool, n)), '[]') FROM (
        SELECT p.key AS pool, sum(p.value::integer)::integer AS n FROM session, jsonb_each_text(session.pools) AS p(key, value)
        WHERE NOT session.draining GROUP BY p.key) x),
    'held', (SELECT coalesce(json_agg(json_build_array(pool, leases, claimed, members, zombies)), '[]') FROM (
        SELECT coalesce(via, pool) AS pool, count(*) AS leases, count(claimed_at) AS claimed, sum(n) AS members,
               count(zombie_since) AS zombies
        FROM lease GROUP BY 1) x),
    'of_tenants', (SELECT coalesce(json_agg(json_build_array(tenant_id, n)), '[]') FROM (
        SELECT tenant_id, count(*) AS n FROM lease_member GROUP BY 1) x),
    'resources', (SELECT coalesce(json_agg(json_build_array(
        resource, limit_now, in_flight, waiting, breaker, extract(epoch FROM seen_at)::double precision)), '[]')
        FROM resource_state),
    'level', (SELECT json_build_array(level, extract(epoch FROM seen_at)::double precision, readings) FROM level WHERE id = 1),
    'forecasts', (SELECT json_build_array(extract(epoch FROM at)::double precision, took_s, calibration)
                  FROM forecast_pass WHERE id = 1),
    'findings', (SELECT coalesce(json_agg(json_build_array(rule, level, n)), '[]') FROM (
        SELECT rule, level, count(*) AS n FROM audit_finding WHERE closed_at IS NULL GROUP BY 1, 2) x),
    'asked', (SELECT count(*) FROM approval WHERE open),
    'told', (SELECT coalesce(json_agg(json_build_array(uuid, totals)), '[]') FROM worker_session
             WHERE totals <> '{}' AND (ended_at IS NULL OR ended_at > to_timestamp(%(from_s)s::double precision))))
