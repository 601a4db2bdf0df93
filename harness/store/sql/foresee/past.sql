-- What runs, what attempts took lately, and what came lately: bounded by the newest rows, by id.
-- Returns: one JSON object: held [pool, via, priority, tenant, run, signature, lane, est_s of each, cost, n, released, claimed
-- (epoch s), zombie, [[task, kind, whether this is its first start] in order]], took [kind, [seconds, sorted], share of
-- attempts that come back], came [pool, priority, tenant, signature, kind, fan-out cap, whether as a run, [sizes of batches]]
-- (single tasks of one second are one batch) with came_s, the span in which they came (not shorter than workers have been there),
-- and led: whether a dispatcher leads, or did 5 s ago; rates [pool, starts a second].
-- Needs: lease_member_of_lease, task_pkey, attempt_pkey, run_pkey. Locks: none.
-- Parameters: attempts, services (of a kind, most), arrivals, streams (most), span_s, rate_s.
WITH newest AS MATERIALIZED (
    SELECT task_id, slot_s, verdict, started FROM attempt ORDER BY id DESC LIMIT %(attempts)s
),
took AS MATERIALIZED (
    SELECT t.kind, t.pool, n.slot_s, n.verdict, n.started, row_number() OVER (PARTITION BY t.kind) AS place
    FROM newest n CROSS JOIN LATERAL (SELECT kind, pool FROM task WHERE id = n.task_id LIMIT 1) t
),
fresh AS MATERIALIZED (
    SELECT pool, priority, tenant_id, run_id, signature, kind, created_at
    FROM task ORDER BY id DESC LIMIT %(arrivals)s
),
batches AS MATERIALIZED (
    SELECT f.pool, f.priority, f.tenant_id, f.signature, f.kind, f.run_id <> 0 AS as_run, r.fanout_cap, count(*) AS size
    FROM fresh f LEFT JOIN run r ON f.run_id <> 0 AND r.id = f.run_id
    WHERE f.created_at > clock_timestamp() - make_interval(secs => %(span_s)s)
    GROUP BY 1, 2, 3, 4, 5, 6, 7, f.run_id, CASE WHEN f.run_id = 0 THEN date_trunc('second', f.created_at) END
)
SELECT json_build_object(
    'held', (SELECT coalesce(json_agg(json_build_array(
                 l.pool, l.via, l.priority, l.tenant_id, l.run_id, l.signature, l.lane, l.est_s, l.cost, l.n,
                 date_part('epoch', l.released_at), date_part('epoch', l.claimed_at), l.zombie_since IS NOT NULL,
                 (SELECT coalesce(json_agg(json_build_array(m.task_id, l.kind, t.first_claimed_at IS NULL) ORDER BY m.ordinal), '[]')
                  FROM lease_member m JOIN task t ON t.id = m.task_id WHERE m.lease_id = l.id))), '[]') FROM lease l),
    'took', (SELECT coalesce(json_agg(json_build_array(kind, seconds, again)), '[]') FROM (
        SELECT kind, json_agg(slot_s ORDER BY slot_s) AS seconds,
               avg((verdict IN ('fail', 'postpone', 'lose', 'interrupt'))::integer)::double precision AS again
        FROM took WHERE place <= %(services)s GROUP BY kind) x),
    'rates', (SELECT coalesce(json_agg(json_build_array(pool, n / greatest(1, span_s))), '[]') FROM (
        SELECT pool, count(*)::double precision AS n,
               date_part('epoch', clock_timestamp() - min(started)) AS span_s
        FROM took WHERE started > clock_timestamp() - make_interval(secs => %(rate_s)s) GROUP BY pool) x),
    'came', (SELECT coalesce(json_agg(json_build_array(
                 pool, priority, tenant_id, signature, kind, fanout_cap, as_run, sizes)), '[]') FROM (
        SELECT pool, priority, tenant_id, signature, kind, fanout_cap, as_run, json_agg(size) AS sizes
        FROM batches GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY count(*) DESC LIMIT %(streams)s) x),
    'came_s', (SELECT CASE WHEN count(*) < %(arrivals)s
                           THEN least(%(span_s)s, greatest(0, date_part('epoch', clock_timestamp() - least(min(created_at), (
                               SELECT min(started_at) FROM worker_session WHERE ended_at IS NULL)))))
                           ELSE least(%(span_s)s, greatest(0, date_part('epoch', clock_timestamp() - min(created_at)))) END
               FROM fresh),
    'led', coalesce((SELECT until > clock_timestamp() - interval '5 s' FROM leader WHERE id = 1), false))
