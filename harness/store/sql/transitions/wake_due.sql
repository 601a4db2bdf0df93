-- Tasks whose not_before has come: queued ones ripen, failed_retryable ones are requeued; both are ready with a flow.
-- Paused ones only lose it, and those that depend on others: they are ready when they are resumed, or these have succeeded,
-- and mustn't be looked at here again and again.
-- A row that somebody has locked is for the next round.
-- Returns: task id. Needs: task_not_before. Locks: tasks by id. Parameters: limit, actor.
WITH due AS MATERIALIZED (
    SELECT id FROM task WHERE not_before <= clock_timestamp() ORDER BY not_before LIMIT %(limit)s
),
locked AS MATERIALIZED (
    SELECT t.id, t.state, t.state = 'paused' OR t.depends AS stays FROM (SELECT * FROM due ORDER BY id) due CROSS JOIN LATERAL (
        SELECT id, state, depends FROM task
        WHERE id = due.id AND coalesce(not_before <= clock_timestamp(), false) -- read again under the lock
          AND state IN ('queued', 'failed_retryable', 'paused') FOR UPDATE SKIP LOCKED) t
),
t AS (
    UPDATE task SET state = 'queued', ready = true, ready_at = clock_timestamp(), not_before = NULL, deferred = false,
                    event_no = event_no + 1
    FROM locked WHERE task.id = locked.id AND NOT locked.stays
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.event_no,
              locked.state AS from_state
),
held AS (
    UPDATE task SET not_before = NULL, deferred = false FROM locked WHERE task.id = locked.id AND locked.stays
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor)
    SELECT id, tenant_id, event_no, clock_timestamp(), CASE from_state WHEN 'queued' THEN 'ripen' ELSE 'requeue' END,
           from_state, 'queued', %(actor)s
    FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
