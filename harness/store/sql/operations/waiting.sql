-- Ready tasks that hold no slot, whatever they wait for, counted by flow as far as `tasks` go, and how long the first has waited.
-- Bounded: `flows` flows (of more some stand for the others).
-- Returns: pool, priority, tenant id, tasks, age of the oldest (s). Needs: task_head, wait_reason_open; nothing on flow.
-- Locks: nothing. Parameters: flows, tasks (most), own (codes: none).
WITH
-- part: flows/counted
waiting AS MATERIALIZED (
    SELECT c.pool, c.priority, c.tenant_id, c.n, head.age_s
    FROM counted c
    CROSS JOIN LATERAL (
        SELECT extract(epoch FROM clock_timestamp() - coalesce(ready_at, created_at))::double precision AS age_s FROM task t
        WHERE t.ready AND t.pool = c.pool AND t.priority = c.priority AND t.tenant_id = c.tenant_id
          AND t.run_id = c.run_id AND t.signature = c.signature ORDER BY t.id LIMIT 1) head
)
SELECT pool, priority, tenant_id, sum(n)::integer, max(age_s) FROM waiting GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
