-- Hold tasks that don't run; released, unclaimed ones leave their lease, and a lease goes with its last member.
-- not_before stays: a back-off goes on while the task is held. start_by stays too, and is looked at when it is resumed.
-- The caller holds the locks (lock_leases_of, then lock_tasks) and has seen the states. Returns: task id.
-- Needs: task_pkey, lease_member_pkey, lease_member_of_lease, lease_pkey. Parameters: tasks, hold, actor, data.
WITH old AS MATERIALIZED (
    SELECT id, state FROM task WHERE id = ANY(%(tasks)s::bigint[])
),
t AS (
    UPDATE task SET state = 'paused', ready = false, holds = array_append(holds, %(hold)s::text), event_no = event_no + 1
    FROM old WHERE task.id = old.id
    RETURNING task.id, task.tenant_id, task.event_no, old.state AS from_state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'pause', from_state, 'paused', %(actor)s, %(data)s::jsonb FROM t
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
