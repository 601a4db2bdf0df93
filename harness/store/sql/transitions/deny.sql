-- A question is denied, and its task ends as cancelled: an undecided one is on no lease.
-- The caller holds the task's lock and has seen the question open under it. Returns: task id.
-- Needs: approval_pkey, task_pkey, task_body_pkey. Locks: the question. Parameters: approval, note, actor, error, data.
WITH a AS (
    UPDATE approval SET open = false, verdict = 'deny', note = %(note)s, decided_by = %(actor)s,
                        decided_at = clock_timestamp(), notify_after = NULL,
                        waited_s = waited_s + extract(epoch FROM clock_timestamp() - asked_at)
    WHERE id = %(approval)s AND open RETURNING task_id
),
t AS (
    UPDATE task SET state = 'cancelled', ready = false, holds = '{}', want = NULL, not_before = NULL, start_by = NULL,
                    deadline = NULL, finished_at = clock_timestamp(), event_no = event_no + 1
    FROM a WHERE task.id = a.task_id AND task.state = 'waiting_approval'
    RETURNING task.id, task.tenant_id, task.event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'deny', 'waiting_approval', 'cancelled', %(actor)s, %(data)s::jsonb
    FROM t
),
b AS (
    UPDATE task_body SET error = %(error)s::jsonb FROM t WHERE task_body.task_id = t.id
)
SELECT id FROM t
