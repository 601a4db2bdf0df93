-- Deferred tasks get in line: of each group the oldest, as many as are let in. One that somebody has locked waits its turn.
-- One that depends on others isn't deferred any more, and gets in line when these have succeeded.
-- Returns: task id. Needs: task_deferred. Locks: tasks by id; new flow rows.
-- Parameters: groups (jsonb array: pool, priority, signature, tenant, tasks), actor, reason.
WITH chosen AS MATERIALIZED (
    SELECT c.id FROM jsonb_array_elements(%(groups)s::jsonb) AS g(one) CROSS JOIN LATERAL (
        SELECT id FROM task
        WHERE deferred AND not_before IS NOT NULL AND state = 'queued' AND pool = g.one ->> 0
          AND priority = (g.one ->> 1)::smallint AND signature = g.one ->> 2 AND tenant_id = (g.one ->> 3)::integer
        ORDER BY pool, priority, signature, tenant_id, id LIMIT (g.one ->> 4)::integer) c
),
locked AS MATERIALIZED (
    SELECT t.id FROM (SELECT * FROM chosen ORDER BY id) chosen CROSS JOIN LATERAL (
        SELECT id FROM task
        WHERE id = chosen.id AND state = 'queued' AND deferred AND not_before IS NOT NULL -- read again under the lock
        FOR UPDATE SKIP LOCKED) t
),
t AS (
    UPDATE task SET ready = NOT depends, ready_at = clock_timestamp(), not_before = NULL, deferred = false, event_no = event_no + 1
    FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'ripen', 'queued', 'queued', %(actor)s,
           jsonb_build_object('reason', %(reason)s::text)
    FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
