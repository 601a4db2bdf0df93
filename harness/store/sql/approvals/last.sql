-- The last question of a task, for who has locked the task: read after the lock, in a statement of its own.
-- Returns: see approvals.Approval. Needs: approval_once. Locks: nothing. Parameters: task (id).
SELECT id, task_id, ordinal, name, prompt, choices, timeout_s, on_timeout, deny, asked_at, deadline, asks, open, verdict, choice,
       note, decided_by, decided_at, waited_s, notified_at, notify_error
FROM approval WHERE task_id = %(task)s ORDER BY ordinal DESC LIMIT 1
