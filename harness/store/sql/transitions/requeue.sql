-- Try failed tasks again now. The caller holds the tasks' locks and has seen the states. Returns: task id.
-- Needs: task_pkey. Locks: none but the caller's; new flow rows. Parameters: tasks, actor, data.
WITH t AS (
    UPDATE task SET state = 'queued', ready = true, ready_at = clock_timestamp(), not_before = NULL, event_no = event_no + 1
    WHERE id = ANY(%(tasks)s::bigint[])
    RETURNING id, tenant_id, pool, priority, run_id, signature, event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'requeue', 'failed_retryable', 'queued', %(actor)s, %(data)s::jsonb
    FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
