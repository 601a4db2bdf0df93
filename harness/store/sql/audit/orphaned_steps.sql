-- The next steps by task whose task is gone, one finding a task.
-- Returns: rule, subject, task id, tenant, facts of each, then a row without a rule: the last id looked at.
-- Needs: step_pkey, task_pkey. Locks: nothing. Parameters: after, until (task ids), limit.
WITH looked AS MATERIALIZED (
    SELECT task_id, tenant_id FROM step WHERE task_id > %(after)s AND task_id <= %(until)s ORDER BY task_id LIMIT %(limit)s
),
-- The last task's steps may be cut off here: what is so of one step is so of all.
tasks AS MATERIALIZED (
    SELECT task_id, min(tenant_id) AS tenant_id, count(*) AS steps FROM looked GROUP BY task_id
)
(SELECT 'steps_without_task', 'steps of task ' || task_id, task_id, tenant_id, jsonb_build_object('steps', steps)
 FROM tasks WHERE (SELECT t.id FROM task t WHERE t.id = tasks.task_id) IS NULL ORDER BY task_id)
UNION ALL
SELECT NULL, NULL, max(task_id), NULL, NULL FROM looked
