-- Note the wish to cancel or pause a running task; its next exit from running obeys it. The caller holds the lock.
-- Returns: task id. Needs: task_pkey. Parameters: task, want, actor, data.
WITH t AS (
    UPDATE task SET want = %(want)s, event_no = event_no + 1
    WHERE id = %(task)s AND state = 'running' AND want IS DISTINCT FROM %(want)s
    RETURNING id, tenant_id, event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'wish', 'running', 'running', %(actor)s, %(data)s::jsonb FROM t
)
SELECT id FROM t
