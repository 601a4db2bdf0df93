-- Note what people wish of running tasks (null: nothing any more); the next exit from running obeys it. The caller
-- holds the tasks' locks. Returns: task id. Needs: task_pkey. Parameters: tasks, want, actor, data.
WITH t AS (
    UPDATE task SET want = %(want)s::text, event_no = event_no + 1
    WHERE id = ANY(%(tasks)s::bigint[]) AND state = 'running'
    RETURNING id, tenant_id, event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'wish', 'running', 'running', %(actor)s, %(data)s::jsonb FROM t
)
SELECT id FROM t
