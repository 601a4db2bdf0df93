-- What signals of pressure are measured from, in one look; run every 5 s, by who holds the lock of `observe`. What is of a
-- tenant alone (paused, at its own cap, beyond its budget) and what its downstream has shut doesn't wait for capacity: left out.
-- Bounded: the newest attempts and tasks by id, `flows` flows (of more some stand for the others), of each at most its even part
-- of `tasks` ready ones.
-- Returns: one JSON object: slots [pool, n]; waiting [pool, priority, signature, n]; heads [pool, priority, tenant, weight,
-- age_s of the oldest]; held [pool, signature, leases, mean estimate]; arrived [pool, signature, priority, bin, n] with
-- arrived_s, the span that they cover (what doors refused counts as well, each idempotency key once); ended [pool, priority, tenant, signature, kind, slot_s, verdict, class, age_s] with
-- ended_s; busy, the connections in a transaction; waits [name, n, p95_s] of live sessions.
-- Needs: attempt_pkey, task_pkey, wait_reason_open, task_head, door_answer_at; nothing on flow, lease, worker_session, tenant.
-- Locks: none. Parameters: own (codes), flows, tasks, attempts, arrivals (most), window_s, arrived_s, bin_s, dead_after_s.
WITH session AS MATERIALIZED (
    SELECT pools, draining, waits FROM worker_session
    WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
),
-- part: flows/counted
waiting AS MATERIALIZED (
    SELECT f.pool, f.priority, f.tenant_id, f.signature, f.n, head.age_s
    FROM counted f
    CROSS JOIN LATERAL (
        SELECT extract(epoch FROM clock_timestamp() - coalesce(ready_at, created_at))::double precision AS age_s FROM task t
        WHERE t.ready AND t.pool = f.pool AND t.priority = f.priority AND t.tenant_id = f.tenant_id
          AND t.run_id = f.run_id AND t.signature = f.signature ORDER BY t.id LIMIT 1) head
),
refused AS MATERIALIZED (
    SELECT pool, signature, priority, extract(epoch FROM clock_timestamp() - at)::double precision AS age_s, once
    FROM door_answer WHERE at >= clock_timestamp() - make_interval(secs => %(arrived_s)s) AND once <> 0
),
arrived AS MATERIALIZED (
    SELECT pool, signature, priority, extract(epoch FROM clock_timestamp() - created_at)::double precision AS age_s
    FROM task ORDER BY id DESC LIMIT %(arrivals)s
),
newest AS MATERIALIZED (
    SELECT task_id, tenant_id, slot_s, verdict, coalesce(error_class, '') AS error,
           extract(epoch FROM clock_timestamp() - ended)::double precision AS age_s
    FROM attempt ORDER BY id DESC LIMIT %(attempts)s
)
SELECT json_build_object(
    'slots', (SELECT coalesce(json_agg(json_build_array(pool, n)), '[]') FROM (
        SELECT p.key AS pool, sum(p.value::integer)::integer AS n FROM session, jsonb_each_text(session.pools) AS p(key, value)
        WHERE NOT session.draining GROUP BY p.key) x),
    'waiting', (SELECT coalesce(json_agg(json_build_array(pool, priority, signature, n)), '[]') FROM (
        SELECT pool, priority, signature, sum(n)::integer AS n FROM waiting GROUP BY 1, 2, 3) x),
    'heads', (SELECT coalesce(json_agg(json_build_array(pool, priority, tenant_id, weight, age_s)), '[]') FROM (
        SELECT pool, priority, tenant_id, max(age_s) AS age_s FROM waiting GROUP BY 1, 2, 3) x
        JOIN tenant ON tenant.id = x.tenant_id),
    'held', (SELECT coalesce(json_agg(json_build_array(pool, signature, n, est_s)), '[]') FROM (
        SELECT pool, signature, count(*) AS n, avg(n * est_s) AS est_s FROM lease GROUP BY 1, 2) x),
    'arrived', (SELECT coalesce(json_agg(json_build_array(pool, signature, priority, bin, n)), '[]') FROM (
        SELECT pool, signature, priority, floor(greatest(age_s, 0) / %(bin_s)s)::integer AS bin, count(*) AS n
        FROM arrived WHERE age_s < %(arrived_s)s GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT pool, signature, priority, floor(greatest(age_s, 0) / %(bin_s)s)::integer, sum(once)
        FROM refused GROUP BY 1, 2, 3, 4) x),
    'arrived_s', (SELECT CASE WHEN count(*) < %(arrivals)s THEN %(arrived_s)s
                              ELSE least(%(arrived_s)s, greatest(max(age_s), 0)) END FROM arrived),
    'ended', (SELECT coalesce(json_agg(json_build_array(
                  t.pool, t.priority, n.tenant_id, t.signature, t.kind, n.slot_s, n.verdict, n.error, n.age_s)), '[]')
              FROM newest n CROSS JOIN LATERAL (
                  SELECT pool, priority, signature, kind FROM task WHERE id = n.task_id LIMIT 1) t
              WHERE n.age_s < %(window_s)s),
    'ended_s', (SELECT CASE WHEN count(*) < %(attempts)s THEN %(window_s)s
                            ELSE least(%(window_s)s, greatest(max(age_s), 1)) END FROM newest),
    'busy', (SELECT count(*) FROM harness_transactions() WHERE pid IS NOT NULL AND state IS DISTINCT FROM 'idle'),
    'waits', (SELECT coalesce(json_agg(json_build_array(w.key, w.value -> 'n', w.value -> 'p95_s')), '[]')
              FROM session, jsonb_each(session.waits) AS w(key, value)))
