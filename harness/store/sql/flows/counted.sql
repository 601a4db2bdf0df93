-- A part of other statements: the ready tasks of flows that wait for capacity, counted as far as `tasks` go.
-- Gives: counted (pool, priority, tenant_id, run_id, signature, n). Needs: wait_reason_open, task_head; nothing on flow.
-- Parameters: flows, tasks (most), own (codes of what is nobody else's wait).
-- part: flows/classes
f AS MATERIALIZED (
    -- Where there are more it is one of two, three .., drawn by the id, which then counts for as many (`step`): so no class hides
    -- another, and who has many flows hides nobody else's of the same class.
    SELECT flow.*, greatest(20, %(tasks)s::integer / count(*) OVER ()) AS most
    FROM (SELECT flow.*, c.step FROM flow
          JOIN (SELECT pool, priority, ceil(n / part)::bigint AS step FROM classes) c USING (pool, priority)) flow
    WHERE mod(hashint8(id), step) = 0 AND NOT EXISTS (
        SELECT FROM wait_reason w
        WHERE w.until IS NULL AND w.tenant_id = flow.tenant_id AND w.run_id = flow.run_id AND w.pool = flow.pool
          AND w.priority = flow.priority AND w.signature = flow.signature AND w.code = ANY(%(own)s::text[]))
),
few AS MATERIALIZED (
    SELECT f.*, (SELECT count(*) FROM (
            SELECT FROM task t WHERE t.ready AND t.pool = f.pool AND t.priority = f.priority AND t.tenant_id = f.tenant_id
              AND t.run_id = f.run_id AND t.signature = f.signature LIMIT f.most) x) AS n
    FROM f
),
counted AS MATERIALIZED (
    -- Who has more than its even part is counted on, by what the others left of `tasks`, half of them at least.
    SELECT f.pool, f.priority, f.tenant_id, f.run_id, f.signature, f.step * CASE WHEN f.n < f.most THEN f.n ELSE (
        SELECT count(*) FROM (
            SELECT FROM task t WHERE t.ready AND t.pool = f.pool AND t.priority = f.priority AND t.tenant_id = f.tenant_id
              AND t.run_id = f.run_id AND t.signature = f.signature LIMIT f.more) x) END AS n
    FROM (SELECT *, most + greatest(%(tasks)s::integer - sum(n) OVER (), %(tasks)s::integer / 2)::bigint
                           / greatest(1, count(*) FILTER (WHERE n >= most) OVER ()) AS more FROM few) f
),
