-- What has come since the last round, added up: attempts that ended, tasks that were submitted, what doors refused, rises of the
-- level, and what people and the clock did to tasks. Rows with a number are looked for in `spans` (policy.tally), events by time.
-- Returns: one JSON object: attempts [pool, priority, kind, verdict, error, n]; ran [pool, kind, place among `bounds`, n, sum];
-- waited [pool, priority, place, n, sum], of first attempts; used [tenant, slot_s]; submitted [pool, priority, tenant, n];
-- acts [event, to, pool, priority, n]; decided [place among `people`, n, sum], waits for decisions; refused [code, priority, n];
-- rose [level, n]; seen (name: [[first, last] ..]), the numbers found; recent [[task, seq] ..], events at or after `since_s`;
-- full: whether there may be more than `most` rows of a kind.
-- Needs: attempt_pkey, attempt_once, task_pkey, door_answer_pkey, level_change_pkey, event_rare, event_of_task, approval_once.
-- Locks: none. Parameters: spans (jsonb array: name, from, to), from_s (events from then on), known (jsonb array of [task, seq]
-- that were counted), since_s, most, bounds, people (arrays).
WITH span AS MATERIALIZED (
    SELECT x ->> 0 AS name, (x ->> 1)::bigint AS low, (x ->> 2)::bigint AS top FROM jsonb_array_elements(%(spans)s::jsonb) AS x
),
attempts AS MATERIALIZED (
    SELECT a.id, a.tenant_id, a.verdict, coalesce(a.error_class, '') AS error, a.slot_s, t.pool, t.priority, t.kind,
           CASE WHEN NOT EXISTS (SELECT FROM attempt b WHERE b.task_id = a.task_id AND b.release_no < a.release_no)
                THEN greatest(0, extract(epoch FROM t.first_claimed_at - CASE
                    WHEN t.ready_at <= t.first_claimed_at THEN t.ready_at ELSE t.created_at END))::double precision END AS wait_s
    FROM span s
    CROSS JOIN LATERAL (
        SELECT id, task_id, tenant_id, release_no, verdict, error_class, slot_s FROM attempt
        WHERE id BETWEEN s.low AND s.top ORDER BY id LIMIT %(most)s) a
    CROSS JOIN LATERAL (
        SELECT pool, priority, kind, created_at, ready_at, first_claimed_at FROM task WHERE id = a.task_id LIMIT 1) t
    WHERE s.name = 'attempt'
),
tasks AS MATERIALIZED (
    SELECT t.id, t.pool, t.priority, t.tenant_id FROM span s
    CROSS JOIN LATERAL (SELECT id, pool, priority, tenant_id FROM task
                        WHERE id BETWEEN s.low AND s.top ORDER BY id LIMIT %(most)s) t
    WHERE s.name = 'task'
),
doors AS MATERIALIZED (
    SELECT d.id, d.code, d.priority, d.tasks FROM span s
    CROSS JOIN LATERAL (SELECT id, code, priority, tasks FROM door_answer
                        WHERE id BETWEEN s.low AND s.top ORDER BY id LIMIT %(most)s) d
    WHERE s.name = 'door_answer'
),
levels AS MATERIALIZED (
    SELECT l.id, l.before, l.after FROM span s
    CROSS JOIN LATERAL (SELECT id, before, after FROM level_change
                        WHERE id BETWEEN s.low AND s.top ORDER BY id LIMIT %(most)s) l
    WHERE s.name = 'level_change'
),
ids AS MATERIALIZED (
    SELECT 'attempt' AS name, id FROM attempts UNION ALL SELECT 'task', id FROM tasks
    UNION ALL SELECT 'door_answer', id FROM doors UNION ALL SELECT 'level_change', id FROM levels
),
runs AS MATERIALIZED (
    SELECT name, json_agg(json_build_array(low, top)) AS seen, sum(n) AS n FROM (
        SELECT name, min(id) AS low, max(id) AS top, count(*) AS n
        FROM (SELECT name, id, id - row_number() OVER (PARTITION BY name ORDER BY id) AS apart FROM ids) x
        GROUP BY name, apart) y
    GROUP BY name
),
events AS MATERIALIZED (
    SELECT e.task_id, e.seq, e.at, e.event, e.to_state, (e.data ->> 'ordinal')::integer AS ordinal
    FROM (SELECT task_id, seq, at, event, to_state, data FROM event
          WHERE event IN ('approve', 'deny', 'approval_timeout', 'cancel', 'expire', 'redrive')
            AND at >= to_timestamp(%(from_s)s::double precision)) e
),
acts AS MATERIALIZED (
    SELECT e.*, t.pool, t.priority FROM events e
    CROSS JOIN LATERAL (SELECT pool, priority FROM task WHERE id = e.task_id LIMIT 1) t
    WHERE (e.task_id, e.seq) NOT IN (
        SELECT (k ->> 0)::bigint, (k ->> 1)::integer FROM jsonb_array_elements(%(known)s::jsonb) AS k)
),
decisions AS MATERIALIZED (
    SELECT a.waited_s FROM acts e
    CROSS JOIN LATERAL (SELECT waited_s FROM approval WHERE task_id = e.task_id AND ordinal = e.ordinal LIMIT 1) a
    WHERE e.event IN ('approve', 'deny')
)
SELECT json_build_object(
    'attempts', (SELECT coalesce(json_agg(json_build_array(pool, priority, kind, verdict, error, n)), '[]') FROM (
        SELECT pool, priority, kind, verdict, error, count(*) AS n FROM attempts GROUP BY 1, 2, 3, 4, 5) x),
    'ran', (SELECT coalesce(json_agg(json_build_array(pool, kind, place, n, s)), '[]') FROM (
        SELECT pool, kind, width_bucket(slot_s, %(bounds)s::double precision[])
                           - (slot_s = ANY(%(bounds)s::double precision[]))::integer AS place, count(*) AS n, sum(slot_s) AS s
        FROM attempts GROUP BY 1, 2, 3) x),
    'waited', (SELECT coalesce(json_agg(json_build_array(pool, priority, place, n, s)), '[]') FROM (
        SELECT pool, priority, width_bucket(wait_s, %(bounds)s::double precision[])
                               - (wait_s = ANY(%(bounds)s::double precision[]))::integer AS place, count(*) AS n, sum(wait_s) AS s
        FROM attempts WHERE wait_s IS NOT NULL GROUP BY 1, 2, 3) x),
    'used', (SELECT coalesce(json_agg(json_build_array(tenant_id, s)), '[]') FROM (
        SELECT tenant_id, sum(slot_s) AS s FROM attempts GROUP BY 1) x),
    'submitted', (SELECT coalesce(json_agg(json_build_array(pool, priority, tenant_id, n)), '[]') FROM (
        SELECT pool, priority, tenant_id, count(*) AS n FROM tasks GROUP BY 1, 2, 3) x),
    'acts', (SELECT coalesce(json_agg(json_build_array(event, to_state, pool, priority, n)), '[]') FROM (
        SELECT event, to_state, pool, priority, count(*) AS n FROM acts GROUP BY 1, 2, 3, 4) x),
    'decided', (SELECT coalesce(json_agg(json_build_array(place, n, s)), '[]') FROM (
        SELECT width_bucket(waited_s, %(people)s::double precision[])
               - (waited_s = ANY(%(people)s::double precision[]))::integer AS place, count(*) AS n, sum(waited_s) AS s
        FROM decisions GROUP BY 1) x),
    'refused', (SELECT coalesce(json_agg(json_build_array(code, priority, n)), '[]') FROM (
        SELECT code, priority, sum(tasks) AS n FROM doors GROUP BY 1, 2) x),
    'rose', (SELECT coalesce(json_agg(json_build_array(after, n)), '[]') FROM (
        SELECT after, count(*) AS n FROM levels WHERE after > before GROUP BY 1) x),
    'seen', (SELECT coalesce(json_object_agg(name, seen), '{}') FROM runs),
    'recent', (SELECT coalesce(json_agg(json_build_array(task_id, seq)), '[]') FROM events
               WHERE at >= to_timestamp(%(since_s)s::double precision)),
    'full', (SELECT coalesce(max(n), 0) >= %(most)s FROM runs))
