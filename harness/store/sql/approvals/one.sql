-- One question by its number, with its task. Returns: see approvals.Asked. Needs: approval_pkey, task_pkey, task_body_pkey.
-- Parameters: approval (id).
SELECT a.id, a.task_id, a.ordinal, a.name, a.prompt, a.choices, a.timeout_s, a.on_timeout, a.deny, a.asked_at, a.deadline,
       a.asks, a.open, a.verdict, a.choice, a.note, a.decided_by, a.decided_at, a.waited_s, a.notified_at, a.notify_error,
       t.public_id, t.tenant_id, t.kind, t.priority, t.state, b.title
FROM approval a JOIN task t ON t.id = a.task_id LEFT JOIN task_body b ON b.task_id = t.id
WHERE a.id = %(approval)s
