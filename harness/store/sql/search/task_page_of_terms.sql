-- A page of a tenant's tasks that have all of these terms, newest first, without output; otherwise as task_page. It walks
-- the entries of one term, the rarest, and looks at no more than `scan` of them. Returns: where the next page begins
-- (null: none), then queries.TaskView.
-- Needs: task_term_pkey, task_pkey. Parameters: tenant, rarest, others (terms), before (id), scan, most; run (public id),
-- state, kind, priority (null: any).
WITH looked AS MATERIALIZED (
    SELECT task_id FROM task_term WHERE tenant_id = %(tenant)s AND term = %(rarest)s AND task_id < %(before)s
    ORDER BY task_id DESC LIMIT %(scan)s
),
found AS (
    SELECT t.* FROM looked JOIN task t ON t.id = looked.task_id
    WHERE (SELECT count(*) FROM unnest(%(others)s::text[]) AS x(term) CROSS JOIN LATERAL (
               SELECT FROM task_term m
               WHERE m.tenant_id = %(tenant)s AND m.term = x.term AND m.task_id = looked.task_id) AS has
          ) = cardinality(%(others)s::text[])
      AND (%(run)s::uuid IS NULL OR t.run_id = (SELECT id FROM run WHERE public_id = %(run)s AND id <> 0))
      AND (%(state)s::text IS NULL OR t.state = %(state)s)
      AND (%(kind)s::text IS NULL OR t.kind = %(kind)s)
      AND (%(priority)s::smallint IS NULL OR t.priority = %(priority)s)
    ORDER BY looked.task_id DESC LIMIT %(most)s
),
bounds AS (
    SELECT CASE WHEN (SELECT count(*) FROM found) = %(most)s THEN (SELECT min(id) FROM found)
                WHEN (SELECT count(*) FROM looked) = %(scan)s THEN (SELECT min(task_id) FROM looked) END AS next
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
