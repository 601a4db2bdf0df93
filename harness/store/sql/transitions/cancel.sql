-- Cancel a task that isn't running; a released, unclaimed one leaves its lease, and the lease goes with its last member.
-- The caller holds the locks (lock_lease_of, then lock_task). Returns: task id.
-- Needs: task_pkey, lease_member_pkey, lease_pkey. Parameters: task, sources (states), actor, data.
WITH t AS (
    UPDATE task SET state = 'cancelled', ready = false, holds = '{}', want = NULL, not_before = NULL, start_by = NULL,
                    deadline = NULL, finished_at = clock_timestamp(), event_no = event_no + 1
    FROM (SELECT id, state FROM task WHERE id = %(task)s) old
    WHERE task.id = old.id AND task.state = ANY(%(sources)s)
    RETURNING task.id, task.tenant_id, task.event_no, old.state AS from_state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'cancel', from_state, 'cancelled', %(actor)s, %(data)s::jsonb FROM t
),
m AS (
    DELETE FROM lease_member USING t WHERE lease_member.task_id = t.id RETURNING lease_member.lease_id
),
z AS (
    DELETE FROM lease USING m WHERE lease.id = m.lease_id
        AND NOT EXISTS (SELECT FROM lease_member o WHERE o.lease_id = m.lease_id AND o.task_id <> %(task)s)
)
SELECT id FROM t
