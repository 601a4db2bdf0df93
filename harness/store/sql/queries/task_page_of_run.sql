-- A page of a run's tasks, newest first, without output; otherwise as task_page.
-- Needs: task_of_run, lease_member_pkey, lease_pkey, attempt_once. Parameters: run (public id), before (id), scan, most; state, kind, priority (null: any).
WITH of_run AS MATERIALIZED (
    SELECT id FROM run WHERE public_id = %(run)s
),
looked AS MATERIALIZED (
    SELECT * FROM task WHERE run_id = (SELECT id FROM of_run) AND run_id <> 0 AND id < %(before)s
    ORDER BY id DESC LIMIT %(scan)s
),
found AS (
    SELECT * FROM looked
    WHERE (%(state)s::text IS NULL OR state = %(state)s)
      AND (%(kind)s::text IS NULL OR kind = %(kind)s)
      AND (%(priority)s::smallint IS NULL OR priority = %(priority)s)
    ORDER BY id DESC LIMIT %(most)s
),
bounds AS (
    SELECT CASE WHEN (SELECT count(*) FROM found) = %(most)s THEN (SELECT min(id) FROM found)
                WHEN (SELECT count(*) FROM looked) = %(scan)s THEN (SELECT min(id) FROM looked) END AS next
)
SELECT bounds.next, f.id, f.public_id, r.public_id, f.kind, f.version, f.pool, f.priority, f.state, f.ready, f.holds,
       f.want, f.attempts_used, f.lost_starts, f.postponements, f.created_at, f.not_before, f.start_by, f.deadline,
       f.first_claimed_at, f.finished_at, m.task_id IS NOT NULL,
       NULL::jsonb, b.error, b.title, b.tags, b.schedule, b.scheduled_for,
       CASE WHEN m.task_id IS NOT NULL THEN l.degraded
            ELSE (SELECT degraded FROM attempt WHERE task_id = f.id ORDER BY release_no DESC LIMIT 1) END, f.deferred
FROM bounds
LEFT JOIN found f ON true
LEFT JOIN task_body b ON b.task_id = f.id
LEFT JOIN lease_member m ON m.task_id = f.id
LEFT JOIN lease l ON l.id = m.lease_id
LEFT JOIN run r ON r.id = f.run_id AND f.run_id <> 0
ORDER BY f.id DESC
