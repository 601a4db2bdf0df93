-- The next tasks by id: their events must be numbered 1, 2, .. event_no, and the last must have led to where they stand.
-- Returns: rule, subject, id, tenant, facts of each fault, then a row without a rule: the last id looked at.
-- Needs: task_pkey, event_of_task (one descent for each day since the task was born). Locks: nothing.
-- Parameters: after, until (ids), limit.
WITH looked AS MATERIALIZED (
    SELECT id, tenant_id, state, event_no, created_at
    FROM task WHERE id > %(after)s AND id <= %(until)s ORDER BY id LIMIT %(limit)s
),
judged AS MATERIALIZED (
    SELECT t.*, e.n, e.became, CASE
        WHEN e.n <> t.event_no OR e.least <> 1 OR e.most <> t.event_no
             OR e.total <> t.event_no::bigint * (t.event_no + 1) / 2 THEN 'trace_gap'
        WHEN e.became <> t.state THEN 'trace_elsewhere'
        END AS rule
    FROM looked t CROSS JOIN LATERAL (
        SELECT count(*) AS n, coalesce(min(seq), 0) AS least, coalesce(max(seq), 0) AS most, coalesce(sum(seq), 0) AS total,
               max(to_state) FILTER (WHERE seq = t.event_no) AS became
        -- The bounds leave out the days before its birth, and those made ahead.
        FROM event WHERE task_id = t.id AND at >= t.created_at - interval '1 day' AND at < now() + interval '1 day'
    ) e
)
(SELECT rule, 'task ' || id, id, tenant_id,
        jsonb_build_object('state', state, 'event_no', event_no, 'events', n, 'last_to', became)
 FROM judged WHERE rule IS NOT NULL ORDER BY id)
UNION ALL
SELECT NULL, NULL, max(id), NULL, NULL FROM looked
