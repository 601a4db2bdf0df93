-- A question is answered: its clock stops, and its task, still waiting_approval, is ready to be released with the answer.
-- The event is `approve`, or `deny` where the kind wants that answer.
-- The caller holds the task's lock and has seen the question open under it. Returns: task id.
-- Needs: approval_pkey, task_pkey. Locks: the question; a new flow row.
-- Parameters: approval, verdict, choice, note, actor, data.
WITH a AS (
    UPDATE approval SET open = false, verdict = %(verdict)s, choice = %(choice)s, note = %(note)s, decided_by = %(actor)s,
                        decided_at = clock_timestamp(), notify_after = NULL,
                        waited_s = waited_s + extract(epoch FROM clock_timestamp() - asked_at)
    WHERE id = %(approval)s AND open RETURNING task_id
),
t AS (
    UPDATE task SET ready = true, ready_at = clock_timestamp(), event_no = event_no + 1
    FROM a WHERE task.id = a.task_id AND task.state = 'waiting_approval'
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), %(verdict)s, 'waiting_approval', 'waiting_approval', %(actor)s,
           %(data)s::jsonb
    FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT pool, priority, tenant_id, run_id, signature FROM t
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
