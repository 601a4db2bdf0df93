-- A task's questions, the newest first. Returns: see approvals.Approval. Needs: approval_once. Parameters: task (id), most.
SELECT id, task_id, ordinal, name, prompt, choices, timeout_s, on_timeout, deny, asked_at, deadline, asks, open, verdict, choice,
       note, decided_by, decided_at, waited_s, notified_at, notify_error
FROM approval WHERE task_id = %(task)s ORDER BY ordinal DESC LIMIT %(most)s
