-- A task that nothing would ever move again gets a way out: queued without a slot, a time or a dependency is ready,
-- failed_retryable without a time is requeued, paused without a hold gets one that a person can take away, and waiting for a
-- decision that nobody can make (or that was made) is ready: it gets the answer that there is, or asks again.
-- The caller holds the task's lock and has seen under it that no lease has it. Returns: state.
-- Needs: task_pkey, dependency_unmet, approval_once. Parameters: task, actor, reason.
WITH t AS (
    UPDATE task SET
        state = CASE WHEN old.state IN ('paused', 'waiting_approval') THEN old.state ELSE 'queued' END,
        ready = old.state <> 'paused',
        depends = false,
        holds = CASE old.state WHEN 'paused' THEN ARRAY['operator'] ELSE '{}' END,
        event_no = event_no + 1
    FROM (SELECT id, state FROM task WHERE id = %(task)s) old
    WHERE task.id = old.id AND CASE task.state
        WHEN 'queued' THEN NOT task.ready AND task.not_before IS NULL
             AND NOT EXISTS (SELECT FROM dependency d WHERE d.task_id = task.id AND NOT d.met)
        WHEN 'failed_retryable' THEN task.not_before IS NULL
        WHEN 'waiting_approval' THEN NOT task.ready AND (
            SELECT a.open FROM approval a WHERE a.task_id = task.id ORDER BY a.ordinal DESC LIMIT 1) IS NOT TRUE
        WHEN 'paused' THEN task.holds = '{}' ELSE false END
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.state,
              task.event_no, old.state AS from_state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(),
           CASE WHEN from_state IN ('queued', 'waiting_approval') THEN 'ripen' WHEN from_state = 'paused' THEN 'pause' ELSE 'requeue' END,
           from_state, state, %(actor)s, jsonb_build_object('reason', %(reason)s::text)
    FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT state FROM t
