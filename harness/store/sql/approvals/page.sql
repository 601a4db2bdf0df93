-- Open questions of the tenant whose rows are seen, the oldest first, with their tasks; only those whose task waits.
-- Returns: see approvals.Asked. Needs: approval_open, task_pkey, task_body_pkey. Parameters: tenant, after (id), most.
SELECT a.id, a.task_id, a.ordinal, a.name, a.prompt, a.choices, a.timeout_s, a.on_timeout, a.deny, a.asked_at, a.deadline,
       a.asks, a.open, a.verdict, a.choice, a.note, a.decided_by, a.decided_at, a.waited_s, a.notified_at, a.notify_error,
       t.public_id, t.tenant_id, t.kind, t.priority, t.state, b.title
FROM approval a
CROSS JOIN LATERAL (SELECT public_id, tenant_id, kind, priority, state FROM task WHERE id = a.task_id LIMIT 1) t
LEFT JOIN LATERAL (SELECT title FROM task_body WHERE task_id = a.task_id LIMIT 1) b ON true
WHERE a.open AND a.tenant_id = %(tenant)s AND a.id > %(after)s AND t.state = 'waiting_approval'
ORDER BY a.id LIMIT %(most)s
