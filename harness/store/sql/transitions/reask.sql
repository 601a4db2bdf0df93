-- A question that ran out is asked again: its task waits for a decision as before, with a new clock, and links to the old
-- asking lead nowhere. The caller holds the task's lock and has seen the holds. Returns: task id.
-- Needs: approval_pkey, task_pkey, approval_hook_pkey. Locks: the question. Parameters: approval, actor, data.
WITH a AS (
    UPDATE approval SET open = true, asks = asks + 1, asked_at = clock_timestamp(),
                        deadline = clock_timestamp() + make_interval(secs => timeout_s),
                        notified_at = NULL, notify_tries = 0, notify_error = NULL,
                        notify_after = CASE WHEN EXISTS (SELECT FROM approval_hook h WHERE h.tenant_id = approval.tenant_id)
                                            THEN clock_timestamp() END
    WHERE id = %(approval)s AND verdict IS NULL RETURNING task_id
),
t AS (
    UPDATE task SET state = 'waiting_approval', holds = '{}', not_before = NULL, event_no = event_no + 1
    FROM a WHERE task.id = a.task_id AND task.state = 'paused'
    RETURNING task.id, task.tenant_id, task.event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'reask', 'paused', 'waiting_approval', %(actor)s, %(data)s::jsonb
    FROM t
)
SELECT id FROM t
