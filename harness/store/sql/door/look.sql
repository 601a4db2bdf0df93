-- What waits of new work are predicted from, in one look; run every second by the leader's side.
-- What waits for something of its own (paused, at its own cap, beyond its budget, its downstream shut) is in nobody's way:
-- left out. What was postponed and comes back within `soon_s` counts as waiting. Bounded: `flows` flows (of more some stand for the
-- others), of each at most its even part of `tasks` ready ones; the newest tasks and attempts by id.
-- Returns: one JSON object: slots [pool, n]; waiting [place, priority, tenant (null: several, alike), tasks, weight], where a
-- place is 'pool NAME' or 'resource NAME'; held [pool, signature, leases, mean estimate]; came [pool, signature, priority,
-- a second]; ran [pool, signature, n, slot_s]; deferred [pool, priority, signature, tenant, weight, n, first id];
-- service_s (kind: seconds); at (epoch seconds); last_task (newest id).
-- Needs: attempt_pkey, task_pkey, wait_reason_open, task_head, task_not_before, task_deferred; nothing on flow, lease,
-- worker_session, tenant. Locks: none. Parameters: own (codes), flows, tasks, attempts, arrivals, groups, counted (most),
-- window_s, ran_s, soon_s, dead_after_s, enough (attempts that make a median).
WITH RECURSIVE groups AS (
    (SELECT pool, priority, signature, tenant_id, id, 1 AS n FROM task
     WHERE deferred AND not_before IS NOT NULL ORDER BY pool, priority, signature, tenant_id, id LIMIT 1)
    UNION ALL
    SELECT x.* FROM groups g CROSS JOIN LATERAL (
        SELECT pool, priority, signature, tenant_id, id, g.n + 1 FROM task
        WHERE deferred AND not_before IS NOT NULL
          AND (pool, priority, signature, tenant_id) > (g.pool, g.priority, g.signature, g.tenant_id)
        ORDER BY pool, priority, signature, tenant_id, id LIMIT 1) x
    WHERE g.n < %(groups)s
),
deferring AS MATERIALIZED (
    SELECT g.pool, g.priority, g.signature, g.tenant_id, g.id, counted.n
    FROM groups g CROSS JOIN LATERAL (
        SELECT count(*)::integer AS n FROM (
            SELECT FROM task t WHERE t.deferred AND t.not_before IS NOT NULL AND t.state = 'queued' AND t.pool = g.pool
              AND t.priority = g.priority AND t.signature = g.signature AND t.tenant_id = g.tenant_id LIMIT %(counted)s) c
        ) counted
    WHERE counted.n > 0
),
-- part: flows/counted
waiting AS MATERIALIZED (
    SELECT pool, priority, tenant_id, signature, n FROM counted
    UNION ALL
    SELECT pool, priority, tenant_id, signature, count(*) FROM (
        SELECT pool, priority, tenant_id, signature FROM task
        WHERE not_before < clock_timestamp() + make_interval(secs => %(soon_s)s) AND state = 'queued' AND postponements > 0
        ORDER BY not_before LIMIT %(counted)s) soon
    GROUP BY 1, 2, 3, 4
),
spots AS MATERIALIZED (
    SELECT s.place, s.priority, s.tenant_id, sum(s.n)::double precision AS n, tenant.weight
    FROM (SELECT 'pool ' || pool AS place, priority, tenant_id, n FROM waiting
          UNION ALL
          SELECT 'resource ' || split_part(part, '=', 1), priority, tenant_id, n * split_part(part, '=', 2)::integer
          FROM waiting CROSS JOIN LATERAL string_to_table(signature, ',') AS part WHERE signature <> '') s
    JOIN tenant ON tenant.id = s.tenant_id
    GROUP BY s.place, s.priority, s.tenant_id, tenant.weight
    HAVING sum(s.n) > 0
),
crowds AS MATERIALIZED (
    -- Tenants with about as many each, for their weight, are one crowd: two to each doubling.
    SELECT place, priority, tenant, sum(n) AS n, sum(weight) AS weight
    FROM (SELECT place, priority, n, weight, floor(2 * ln(n / weight) / ln(2::double precision)) AS about,
                 CASE WHEN tenant_id IN (SELECT tenant_id FROM deferring) THEN tenant_id END AS tenant
          FROM spots) x
    GROUP BY place, priority, tenant, about
),
newest AS MATERIALIZED (
    SELECT pool, signature, priority, extract(epoch FROM clock_timestamp() - created_at)::double precision AS age_s, deferred
    FROM task ORDER BY id DESC LIMIT %(arrivals)s
),
covered AS MATERIALIZED (
    SELECT CASE WHEN count(*) < %(arrivals)s::integer THEN %(window_s)s::double precision
                ELSE least(%(window_s)s::double precision, greatest(max(age_s), 1)) END AS s FROM newest
),
ended AS MATERIALIZED (
    SELECT t.pool, t.signature, t.kind, a.slot_s, a.verdict IN ('succeed', 'fail', 'bury') AS done
    FROM (SELECT task_id, slot_s, verdict, ended FROM attempt ORDER BY id DESC LIMIT %(attempts)s) a
    CROSS JOIN LATERAL (SELECT pool, signature, kind FROM task WHERE id = a.task_id LIMIT 1) t
    WHERE a.ended > clock_timestamp() - make_interval(secs => %(ran_s)s)
)
SELECT json_build_object(
    'slots', (SELECT coalesce(json_agg(json_build_array(pool, n)), '[]') FROM (
        SELECT p.key AS pool, sum(p.value::integer)::integer AS n
        FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) AS p(key, value)
        WHERE s.ended_at IS NULL AND NOT s.draining
          AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
        GROUP BY p.key) x),
    'waiting', (SELECT coalesce(json_agg(json_build_array(place, priority, tenant, n, weight)), '[]') FROM crowds),
    'held', (SELECT coalesce(json_agg(json_build_array(pool, signature, n, est_s)), '[]') FROM (
        SELECT pool, signature, count(*) AS n, avg(n * est_s) AS est_s FROM lease GROUP BY 1, 2) x),
    'came', (SELECT coalesce(json_agg(json_build_array(pool, signature, priority, n / (SELECT s FROM covered))), '[]') FROM (
        SELECT pool, signature, priority, count(*) AS n FROM newest WHERE age_s < (SELECT s FROM covered) AND NOT deferred
        GROUP BY 1, 2, 3) x),
    'ran', (SELECT coalesce(json_agg(json_build_array(pool, signature, n, slot_s)), '[]') FROM (
        SELECT pool, signature, count(*) AS n, sum(slot_s) AS slot_s FROM ended GROUP BY 1, 2) x),
    'deferred', (SELECT coalesce(json_agg(json_build_array(
                     d.pool, d.priority, d.signature, d.tenant_id, tenant.weight, d.n, d.id)), '[]')
                 FROM deferring d JOIN tenant ON tenant.id = d.tenant_id),
    'service_s', (SELECT json_object_agg(e.kind, coalesce(m.s, e.mean_s))
                  FROM estimate e LEFT JOIN (
                      SELECT kind, percentile_cont(0.5) WITHIN GROUP (ORDER BY slot_s) AS s FROM ended WHERE done
                      GROUP BY kind HAVING count(*) >= %(enough)s) m ON m.kind = e.kind),
    'at', extract(epoch FROM statement_timestamp())::double precision,
    'last_task', coalesce((SELECT max(id) FROM task), 0))
