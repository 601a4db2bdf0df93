-- The next attempts by id whose task is gone.
-- Returns: rule, subject, id, tenant, facts of each, then a row without a rule: the last id looked at.
-- Needs: attempt_pkey, task_pkey. Locks: nothing. Parameters: after, until (ids), limit.
WITH looked AS MATERIALIZED (
    SELECT id, tenant_id, task_id, release_no
    FROM attempt WHERE id > %(after)s AND id <= %(until)s ORDER BY id LIMIT %(limit)s
)
(SELECT 'attempt_without_task', 'attempt ' || id, id, tenant_id, jsonb_build_object('task', task_id, 'release_no', release_no)
 FROM looked WHERE (SELECT t.id FROM task t WHERE t.id = looked.task_id) IS NULL ORDER BY id)
UNION ALL
SELECT NULL, NULL, max(id), NULL, NULL FROM looked
