-- The next tasks by id: what has no way out of its state, what runs without a slot; live ones whose body or run is gone.
-- Returns: rule, subject, id, tenant, facts of each fault (one a task), then a row without a rule: the last id looked at.
-- Needs: task_pkey, task_of_parent, dependency_unmet, lease_member_pkey, task_body_pkey, run_pkey, step_pkey, approval_once;
-- worker_session and notice, a queue, are small. Locks: nothing.
-- Parameters: after, until (ids), limit, version_wait_s.
WITH looked AS MATERIALIZED (
    SELECT id, tenant_id, run_id, parent_id, kind, version, state, ready, holds, not_before, depends, release_no, event_no, created_at,
           finished_at
    FROM task WHERE id > %(after)s AND id <= %(until)s ORDER BY id LIMIT %(limit)s
),
known AS MATERIALIZED (
    SELECT array_agg(DISTINCT k) AS kinds FROM worker_session s CROSS JOIN LATERAL unnest(s.kinds) k WHERE s.ended_at IS NULL
),
noticed AS MATERIALIZED (
    -- The way out of what waited for others: a dispatcher that is held up for seconds looks at them next.
    SELECT coalesce(array_agg(DISTINCT task_id), '{}') AS tasks FROM notice WHERE NOT down
),
judged AS MATERIALIZED (
    -- Scalar subqueries: one descent each, whatever the tables held when this was planned.
    SELECT t.*, CASE
        WHEN t.state = 'running' AND (SELECT m.lease_id FROM lease_member m WHERE m.task_id = t.id) IS NULL
            THEN 'running_without_lease'
        WHEN t.state = 'queued' AND NOT t.ready AND t.not_before IS NULL
             AND (SELECT m.lease_id FROM lease_member m WHERE m.task_id = t.id) IS NULL
             AND (NOT t.depends OR (SELECT d.task_id FROM dependency d WHERE d.task_id = t.id AND NOT d.met LIMIT 1) IS NULL)
             AND (NOT t.depends OR t.id <> ALL ((SELECT tasks FROM noticed)::bigint[]))
            THEN 'stranded'
        WHEN t.state = 'paused' AND 'children' = ANY(t.holds)
             AND coalesce((SELECT c.finished_at IS NOT NULL FROM task c WHERE c.parent_id = t.id
                           ORDER BY c.finished_at DESC, c.id DESC LIMIT 1), true)
             AND t.id <> ALL ((SELECT tasks FROM noticed)::bigint[])
            THEN 'parked_for_nothing'
        WHEN t.state = 'waiting_approval' AND NOT t.ready
             AND (SELECT m.lease_id FROM lease_member m WHERE m.task_id = t.id) IS NULL
             AND (SELECT a.open FROM approval a WHERE a.task_id = t.id ORDER BY a.ordinal DESC LIMIT 1) IS NOT TRUE
            THEN 'unanswerable'
        WHEN t.state = 'failed_retryable' AND t.not_before IS NULL THEN 'never_due'
        WHEN t.state = 'paused' AND t.holds = '{}' THEN 'paused_without_hold'
        WHEN t.state = 'paused' AND t.holds = ARRAY['version']
             AND NOT t.kind || '@' || t.version = ANY((SELECT kinds FROM known)::text[])
             AND (SELECT max(e.at) FROM event e WHERE e.task_id = t.id AND e.seq = t.event_no
                  AND e.at >= t.created_at - interval '1 day' AND e.at < now() + interval '1 day')
                 < clock_timestamp() - make_interval(secs => %(version_wait_s)s)
            THEN 'version_unknown'
        WHEN t.state = 'paused' AND t.holds = ARRAY['version']
             AND (SELECT max(s.differed_at) FROM step s WHERE s.task_id = t.id)
                 < clock_timestamp() - make_interval(secs => %(version_wait_s)s)
            THEN 'steps_differ'
        WHEN t.finished_at IS NOT NULL THEN NULL -- what is over needs nothing more, and there are many
        WHEN (SELECT b.tenant_id FROM task_body b WHERE b.task_id = t.id) IS NULL THEN 'task_without_body'
        WHEN t.run_id <> 0 AND (SELECT r.id FROM run r WHERE r.id = t.run_id) IS NULL THEN 'task_without_run'
        END AS rule
    FROM looked t
)
(SELECT rule, CASE WHEN rule IN ('version_unknown', 'steps_differ') THEN 'kind ' || kind || '@' || version ELSE 'task ' || id END,
        id, tenant_id, jsonb_build_object('state', state, 'release_no', release_no, 'kind', kind, 'run', run_id)
 FROM judged WHERE rule IS NOT NULL ORDER BY id)
UNION ALL
SELECT NULL, NULL, max(id), NULL, NULL FROM looked
