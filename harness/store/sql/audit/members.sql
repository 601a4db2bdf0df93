-- The next members of leases by task: each must stand for a release of its task that is under way.
-- Returns: rule, subject, task id, tenant, facts of each fault, then a row without a rule: the last id looked at.
-- Needs: lease_member_pkey, task_pkey, lease_pkey. Locks: nothing. Parameters: after, until (task ids), limit.
WITH looked AS MATERIALIZED (
    SELECT task_id, tenant_id, lease_id, release_no
    FROM lease_member WHERE task_id > %(after)s AND task_id <= %(until)s ORDER BY task_id LIMIT %(limit)s
),
judged AS MATERIALIZED (
    SELECT m.*, t.state, t.release_no AS task_release_no, l.claimed_at, CASE
        WHEN t.id IS NULL THEN 'member_without_task'
        WHEN l.id IS NULL THEN 'member_without_lease'
        WHEN t.release_no <> m.release_no THEN 'member_of_other_release'
        WHEN t.state NOT IN ('queued', 'running', 'waiting_approval') THEN 'member_of_idle_task'
        WHEN (l.claimed_at IS NULL) = (t.state = 'running') THEN 'member_at_odds'
        WHEN t.ready THEN 'ready_while_leased'
        END AS rule
    FROM looked m
    LEFT JOIN LATERAL (SELECT id, state, ready, release_no FROM task WHERE id = m.task_id LIMIT 1) t ON true
    LEFT JOIN LATERAL (SELECT id, claimed_at FROM lease WHERE id = m.lease_id LIMIT 1) l ON true
)
(SELECT rule, 'task ' || task_id, task_id, tenant_id,
        jsonb_build_object('lease', lease_id, 'release_no', release_no, 'state', state,
                           'task_release_no', task_release_no, 'claimed', claimed_at IS NOT NULL)
 FROM judged WHERE rule IS NOT NULL ORDER BY task_id)
UNION ALL
SELECT NULL, NULL, max(task_id), NULL, NULL FROM looked
