-- Take questions that their tenants' hooks are to hear of, at most four a tenant (a hook that is down holds up no other's):
-- each is due again after a while, unless told_of says that it went out. Taken before it is sent: who dies sends it again.
-- Returns: id, asks, tenant, url, tries before, task's public id, kind, title, prompt, choices, deny, asked_at, deadline.
-- Needs: approval_notify, task_pkey, task_body_pkey; approval_hook is small. Locks: the questions.
-- Parameters: limit, again_s (after the first try; twice as long each time), again_most_s.
WITH due AS MATERIALIZED (
    SELECT a.id, a.notify_after, h.url
    FROM approval_hook h CROSS JOIN LATERAL (
        SELECT a.id, a.notify_after FROM approval a
        WHERE a.tenant_id = h.tenant_id AND a.notify_after <= clock_timestamp() AND a.open
          AND (SELECT state FROM task WHERE task.id = a.task_id) = 'waiting_approval'
        ORDER BY a.notify_after LIMIT 4) a
    ORDER BY a.notify_after LIMIT %(limit)s
),
locked AS MATERIALIZED (
    SELECT a.id, due.url FROM (SELECT * FROM due ORDER BY id) due CROSS JOIN LATERAL (
        SELECT id FROM approval WHERE id = due.id AND notify_after <= clock_timestamp() AND open
        FOR UPDATE SKIP LOCKED) a
),
u AS (
    UPDATE approval SET notify_tries = notify_tries + 1,
        notify_after = clock_timestamp()
            + make_interval(secs => least(%(again_s)s * 2 ^ least(notify_tries, 20), %(again_most_s)s)::double precision)
    FROM locked WHERE approval.id = locked.id
    RETURNING approval.*, locked.url
)
SELECT u.id, u.asks, u.tenant_id, u.url, u.notify_tries, t.public_id, t.kind, b.title, u.prompt, u.choices, u.deny, u.asked_at,
       u.deadline
FROM u CROSS JOIN LATERAL (SELECT public_id, kind FROM task WHERE id = u.task_id LIMIT 1) t
LEFT JOIN LATERAL (SELECT title FROM task_body WHERE task_id = u.task_id LIMIT 1) b ON true
