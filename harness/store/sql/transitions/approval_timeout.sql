-- Questions that nobody answered in time: their tasks are paused (hold approval_timeout) or cancelled, as the kind says; never
-- approved. A due question whose task doesn't wait (it was lost while it asked, say) is closed: the next attempt opens it.
-- An answer that came at the same moment wins: the question is looked at again under its own lock. A task that somebody
-- has locked is for the next round.
-- Returns: task id. Needs: approval_due, approval_pkey, task_pkey. Locks: tasks by id, then questions.
-- Parameters: limit, actor.
WITH due AS MATERIALIZED (
    SELECT id, task_id FROM approval WHERE open AND deadline <= clock_timestamp() ORDER BY deadline LIMIT %(limit)s
),
locked AS MATERIALIZED (
    SELECT due.id AS approval, t.state = 'waiting_approval' AS waits
    FROM (SELECT * FROM due ORDER BY task_id) due CROSS JOIN LATERAL (
        SELECT state FROM task WHERE id = due.task_id FOR UPDATE SKIP LOCKED) t
),
a AS (
    UPDATE approval SET open = false, notify_after = NULL,
                        waited_s = waited_s + CASE WHEN locked.waits
                                                   THEN extract(epoch FROM clock_timestamp() - asked_at) ELSE 0 END
    FROM locked WHERE approval.id = locked.approval AND approval.open AND approval.deadline <= clock_timestamp()
    RETURNING approval.task_id, approval.ordinal, approval.timeout_s,
              CASE approval.on_timeout WHEN 'cancel' THEN 'cancelled' ELSE 'paused' END AS goes_to, locked.waits
),
t AS (
    UPDATE task SET
        state = a.goes_to, ready = false,
        holds = CASE a.goes_to WHEN 'paused' THEN ARRAY['approval_timeout'] ELSE '{}' END,
        deadline = CASE a.goes_to WHEN 'cancelled' THEN NULL ELSE task.deadline END,
        finished_at = CASE a.goes_to WHEN 'cancelled' THEN clock_timestamp() END,
        event_no = event_no + 1
    FROM a WHERE task.id = a.task_id AND a.waits AND task.state = 'waiting_approval'
    RETURNING task.id, task.tenant_id, task.event_no, task.state, a.ordinal, a.timeout_s
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'approval_timeout', 'waiting_approval', state, %(actor)s,
           jsonb_build_object('ordinal', ordinal, 'timeout_s', timeout_s)
    FROM t
),
b AS (
    UPDATE task_body SET error = '{"class": "approval_timeout", "message": "nobody decided in time"}'
    FROM t WHERE task_body.task_id = t.id AND t.state = 'cancelled'
)
SELECT id FROM t
