-- One task as its tenant sees it, without traceback. Returns: see queries.TaskView.
-- Needs: task's unique index on public_id, task_body_pkey, run_pkey, lease_member_pkey, lease_pkey, attempt_once. Parameters: task (public id).
SELECT t.id, t.public_id, r.public_id, t.kind, t.version, t.pool, t.priority, t.state, t.ready, t.holds, t.want,
       t.attempts_used, t.lost_starts, t.postponements, t.created_at, t.not_before, t.start_by, t.deadline,
       t.first_claimed_at, t.finished_at, m.task_id IS NOT NULL,
       b.output, b.error, b.title, b.tags, b.schedule, b.scheduled_for,
       CASE WHEN m.task_id IS NOT NULL THEN l.degraded
            ELSE (SELECT degraded FROM attempt WHERE task_id = t.id ORDER BY release_no DESC LIMIT 1) END, t.deferred
FROM task t
LEFT JOIN task_body b ON b.task_id = t.id
LEFT JOIN lease_member m ON m.task_id = t.id
LEFT JOIN lease l ON l.id = m.lease_id
LEFT JOIN run r ON r.id = t.run_id AND t.run_id <> 0
WHERE t.public_id = %(task)s
