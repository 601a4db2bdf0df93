-- The next tasks by id: attempts_used must be what their attempts spent (since the last redrive, which resets it), and no
-- attempt may be of a release that the task has yet to see. A lost worker spends nothing.
-- Returns: rule, subject, id, tenant, facts of each fault, then a row without a rule: the last id looked at.
-- Needs: task_pkey, attempt_once; event_of_task for those that differ. Locks: nothing. Parameters: after, until, limit.
WITH looked AS MATERIALIZED (
    SELECT id, tenant_id, state, release_no, attempts_used, created_at
    FROM task WHERE id > %(after)s AND id <= %(until)s ORDER BY id LIMIT %(limit)s
),
judged AS MATERIALIZED (
    SELECT t.*, a.last, a.spent, CASE
        WHEN a.last > t.release_no THEN 'fence_went_back'
        WHEN a.spent <> t.attempts_used AND t.attempts_used <> (
            SELECT count(*) FROM attempt s
            WHERE s.task_id = t.id AND s.verdict IN ('fail', 'bury') AND s.error_class IS DISTINCT FROM 'lost'
              AND s.ended > coalesce((
                SELECT max(e.at) FROM event e WHERE e.task_id = t.id AND e.event = 'redrive'
                  AND e.at >= t.created_at - interval '1 day' AND e.at < now() + interval '1 day'), '-infinity'))
            THEN 'attempts_miscounted'
        END AS rule
    FROM looked t CROSS JOIN LATERAL (
        SELECT coalesce(max(release_no), 0) AS last,
               count(*) FILTER (WHERE verdict IN ('fail', 'bury') AND error_class IS DISTINCT FROM 'lost') AS spent
        FROM attempt WHERE task_id = t.id
    ) a
)
(SELECT rule, 'task ' || id, id, tenant_id,
        jsonb_build_object('state', state, 'release_no', release_no, 'last_attempt', last, 'attempts_used', attempts_used,
                           'spent', spent)
 FROM judged WHERE rule IS NOT NULL ORDER BY id)
UNION ALL
SELECT NULL, NULL, max(id), NULL, NULL FROM looked
