-- The next task bodies by task whose task is gone.
-- Returns: rule, subject, task id, tenant, facts of each, then a row without a rule: the last id looked at.
-- Needs: task_body_pkey, task_pkey. Locks: nothing. Parameters: after, until (task ids), limit.
WITH looked AS MATERIALIZED (
    SELECT task_id, tenant_id FROM task_body WHERE task_id > %(after)s AND task_id <= %(until)s ORDER BY task_id LIMIT %(limit)s
)
(SELECT 'body_without_task', 'body of task ' || task_id, task_id, tenant_id, '{}'::jsonb
 FROM looked WHERE (SELECT t.id FROM task t WHERE t.id = looked.task_id) IS NULL ORDER BY task_id)
UNION ALL
SELECT NULL, NULL, max(task_id), NULL, NULL FROM looked
