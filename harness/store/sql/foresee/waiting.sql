-- The tasks that a pass looks at: the first ones of each flow, the nearest to their flows' heads first, the classes in turn, and
-- those that are planned for the next hour; and how many stand behind them, as far as that is counted.
-- Returns: one JSON object: flows [pool, priority, tenant, run, signature, tasks counted, code, subject of what binds it],
-- tasks [id, number of the flow (from 0), kind, epoch s since when it may run, single, lost_starts, whether it ever began],
-- planned [id, pool, priority, tenant, run, signature, kind, epoch s, single, lost_starts, whether it ever began].
-- Needs: task_head, wait_reason_open, task_not_before; nothing on flow. Locks: none.
-- Parameters: flows, most (tasks), counted (tasks in all; of a flow its even part, 20 to 2,000), planned (most), planned_s.
WITH
-- part: flows/classes
f AS MATERIALIZED (
    SELECT flow.*, row_number() OVER (ORDER BY id) - 1 AS n, count(*) OVER () AS flows
    FROM (SELECT flow.*, row_number() OVER (PARTITION BY pool, priority ORDER BY id) <= classes.part AS seen
          FROM flow JOIN classes USING (pool, priority)) flow
    WHERE seen
),
heads AS MATERIALIZED (
    SELECT f.n, h.*
    FROM f CROSS JOIN LATERAL (
        SELECT id, kind, single, lost_starts, first_claimed_at IS NOT NULL AS began,
               date_part('epoch', coalesce(ready_at, created_at)) AS since_s, row_number() OVER (ORDER BY id) AS place
        FROM (
            SELECT * FROM task
            WHERE ready
              AND (pool, priority, tenant_id, run_id, signature) >= (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
              AND (pool, priority, tenant_id, run_id, signature) <= (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
            ORDER BY pool, priority, tenant_id, run_id, signature, id
            LIMIT greatest(4, least(%(most)s::integer, 4 * %(most)s::integer / f.flows))) t) h
),
taken AS MATERIALIZED (
    SELECT heads.* FROM heads JOIN f USING (n)
    ORDER BY row_number() OVER (PARTITION BY f.pool, f.priority ORDER BY heads.place, heads.id), heads.id LIMIT %(most)s
),
planned AS MATERIALIZED (
    SELECT * FROM task
    WHERE not_before <= clock_timestamp() + make_interval(secs => %(planned_s)s)
    ORDER BY not_before LIMIT %(planned)s
)
SELECT json_build_object(
    'flows', (SELECT coalesce(json_agg(json_build_array(
                  f.pool, f.priority, f.tenant_id, f.run_id, f.signature, c.n, w.code, w.subject) ORDER BY f.n), '[]')
              FROM f
              CROSS JOIN LATERAL (
                  SELECT count(*)::integer AS n FROM (
                      SELECT FROM task t WHERE t.ready AND t.pool = f.pool AND t.priority = f.priority
                        AND t.tenant_id = f.tenant_id AND t.run_id = f.run_id AND t.signature = f.signature
                      LIMIT greatest(20, least(2000, %(counted)s::integer / f.flows))) x) c
              LEFT JOIN LATERAL (
                  SELECT code, subject FROM wait_reason w
                  WHERE w.until IS NULL AND w.tenant_id = f.tenant_id AND w.run_id = f.run_id AND w.pool = f.pool
                    AND w.priority = f.priority AND w.signature = f.signature LIMIT 1) w ON true),
    'tasks', (SELECT coalesce(json_agg(json_build_array(id, n, kind, since_s, single, lost_starts, began) ORDER BY id), '[]')
              FROM taken),
    'planned', (SELECT coalesce(json_agg(json_build_array(
                    id, pool, priority, tenant_id, run_id, signature, kind, date_part('epoch', not_before), single, lost_starts,
                    first_claimed_at IS NOT NULL) ORDER BY id), '[]')
                FROM planned WHERE state IN ('queued', 'failed_retryable') AND NOT ready))
