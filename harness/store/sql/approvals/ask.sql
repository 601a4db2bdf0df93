-- A running attempt asks: the question's row, open; the transition `ask` follows when the attempt is settled. Fenced by task
-- and release_no. What was decided stays decided: then that is the answer, whatever is asked now.
-- Returns: verdict, choice (nulls: nobody has decided); no row: the task isn't this release's any more.
-- Needs: task_pkey, approval_once, approval_hook_pkey. Locks: the task, then the question.
-- Parameters: task, release_no, ordinal, name, prompt, choices, timeout_s (or null), on_timeout, deny.
WITH t AS MATERIALIZED (
    SELECT id, tenant_id FROM task
    WHERE id = %(task)s AND release_no = %(release_no)s AND state = 'running' FOR UPDATE
),
a AS (
    INSERT INTO approval (task_id, tenant_id, ordinal, name, prompt, choices, timeout_s, on_timeout, deny, asked_at,
                          deadline, notify_after)
    SELECT t.id, t.tenant_id, %(ordinal)s, %(name)s, %(prompt)s, %(choices)s::text[], %(timeout_s)s::double precision,
           %(on_timeout)s, %(deny)s, clock_timestamp(),
           clock_timestamp() + make_interval(secs => %(timeout_s)s::double precision),
           CASE WHEN EXISTS (SELECT FROM approval_hook h WHERE h.tenant_id = t.tenant_id) THEN clock_timestamp() END
    FROM t
    ON CONFLICT (task_id, ordinal) DO UPDATE SET
        name = excluded.name, prompt = excluded.prompt, choices = excluded.choices, timeout_s = excluded.timeout_s,
        on_timeout = excluded.on_timeout, deny = excluded.deny, asked_at = excluded.asked_at,
        deadline = excluded.deadline, open = true,
        notify_after = CASE WHEN approval.notified_at IS NULL THEN excluded.notify_after END
    WHERE approval.verdict IS NULL
    RETURNING verdict, choice
)
SELECT verdict, choice FROM a
UNION ALL
SELECT o.verdict, o.choice FROM approval o JOIN t ON t.id = o.task_id
WHERE o.ordinal = %(ordinal)s AND o.verdict IS NOT NULL
