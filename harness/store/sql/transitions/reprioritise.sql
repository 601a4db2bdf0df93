-- Give queued tasks without a lease another priority, and with it (if ready) another flow; the old one is left to the
-- dispatcher. The caller holds the tasks' locks and has seen that they aren't leased. Returns: task id.
-- Needs: task_pkey. Locks: none but the caller's; new flow rows. Parameters: tasks, priority, actor, reason.
WITH old AS MATERIALIZED (
    SELECT id, priority FROM task WHERE id = ANY(%(tasks)s::bigint[])
),
t AS (
    UPDATE task SET priority = %(priority)s::smallint, event_no = event_no + 1
    FROM old WHERE task.id = old.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.event_no,
              old.priority AS from_priority
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'reprioritise', 'queued', 'queued', %(actor)s,
           jsonb_strip_nulls(jsonb_build_object('from', from_priority, 'to', priority, 'reason', nullif(%(reason)s::text, '')))
    FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
