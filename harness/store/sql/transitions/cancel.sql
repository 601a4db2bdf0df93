-- Cancel tasks that don't run; released, unclaimed ones leave their lease, and a lease goes with its last member.
-- The caller holds the locks (lock_leases_of, then lock_tasks) and has seen the states. Returns: task id.
-- Needs: task_pkey, approval_once, lease_member_pkey, lease_member_of_lease, lease_pkey. Parameters: tasks, actor, data.
WITH old AS MATERIALIZED (
    SELECT id, state FROM task WHERE id = ANY(%(tasks)s::bigint[])
),
t AS (
    UPDATE task SET state = 'cancelled', ready = false, holds = '{}', want = NULL, not_before = NULL, start_by = NULL,
                    deadline = NULL, finished_at = clock_timestamp(), event_no = event_no + 1
    FROM old WHERE task.id = old.id
    RETURNING task.id, task.tenant_id, task.event_no, old.state AS from_state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'cancel', from_state, 'cancelled', %(actor)s, %(data)s::jsonb FROM t
),
q AS (
    UPDATE approval SET open = false, notify_after = NULL
    FROM t WHERE approval.task_id = t.id AND approval.open AND t.from_state IN ('waiting_approval', 'paused')
),
m AS MATERIALIZED (
    DELETE FROM lease_member USING t WHERE lease_member.task_id = t.id RETURNING lease_member.lease_id
),
c AS (
    -- It never ran: what was charged for it at release is given back.
    INSERT INTO charge (lease_id, pool, priority, lane, tenant_id, run_id, kind, n, slot_s, owed_s)
    SELECT l.id, l.pool, l.priority, l.lane, l.tenant_id, l.run_id, l.kind, 0, 0, -m.n * l.est_s * l.cost
    FROM (SELECT lease_id, count(*) AS n FROM m GROUP BY lease_id) m JOIN lease l ON l.id = m.lease_id
),
z AS (
    DELETE FROM lease USING (SELECT lease_id, count(*) AS n FROM m GROUP BY lease_id) m
    WHERE lease.id = m.lease_id AND (SELECT count(*) FROM lease_member o WHERE o.lease_id = m.lease_id) = m.n
)
SELECT id FROM t
