-- Lift one hold of paused tasks; without another they are queued again: ready, unless their not_before is yet to
-- come, or tasks that they depend on.
-- The caller holds the tasks' locks and has seen the holds. Returns: task id. Needs: task_pkey.
-- Locks: none but the caller's; new flow rows. Parameters: tasks, hold, actor, data.
WITH t AS (
    UPDATE task SET
        state = CASE WHEN array_remove(holds, %(hold)s::text) = '{}' THEN 'queued' ELSE 'paused' END,
        ready = array_remove(holds, %(hold)s::text) = '{}' AND not_before IS NULL AND NOT depends,
        ready_at = clock_timestamp(),
        holds = array_remove(holds, %(hold)s::text),
        event_no = event_no + 1
    WHERE id = ANY(%(tasks)s::bigint[])
    RETURNING id, tenant_id, pool, priority, run_id, signature, event_no, ready, state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'resume', 'paused', state, %(actor)s, %(data)s::jsonb FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
