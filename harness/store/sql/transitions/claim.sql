-- The worker's first statement: take released leases by id and token, each once, and set their tasks running.
-- A task past its start_by, or with less time to its deadline than half of what its kind takes, expires instead. start_by
-- is void from here on; the row keeps it until its next change of index entries (settle, lose), so that this update is HOT.
-- The session must still be counted as alive.
-- Returns: one row a task, by lease and in order: all that execute needs, whether it expired, the cheaper form to run it
-- in; no row, no work.
-- Needs: lease_pkey, lease_member_of_lease, task_pkey, task_body_pkey; estimate_pkey where there is a deadline. Locks:
-- leases by id, then tasks by id.
-- Parameters: leases, tokens (arrays of the same length), session, pid, actor.
WITH held AS MATERIALIZED (
    SELECT l.id FROM unnest(%(leases)s::bigint[], %(tokens)s::bigint[]) AS q(id, token)
    JOIN lease l ON l.id = q.id AND l.token = q.token
    WHERE l.claimed_at IS NULL
      AND EXISTS (SELECT FROM worker_session s WHERE s.uuid = %(session)s AND s.ended_at IS NULL)
    ORDER BY l.id FOR UPDATE OF l
),
l AS MATERIALIZED (
    UPDATE lease SET claimed_at = clock_timestamp(), session = %(session)s, pid = %(pid)s
    FROM held WHERE lease.id = held.id
    RETURNING lease.id, lease.degraded
),
locked AS MATERIALIZED (
    SELECT t.id, t.state, m.lease_id, m.ordinal, m.degraded,
           coalesce(t.start_by < clock_timestamp(), false) OR CASE WHEN t.deadline IS NOT NULL
                THEN t.deadline < clock_timestamp() + make_interval(secs => coalesce(
                     (SELECT mean_s FROM estimate WHERE estimate.kind = t.kind), 0) * 0.5) ELSE false END AS late
    FROM (SELECT m.*, l.degraded FROM l JOIN lease_member m ON m.lease_id = l.id ORDER BY m.task_id) m CROSS JOIN LATERAL (
        SELECT id, state, kind, start_by, deadline FROM task
        WHERE id = m.task_id AND release_no = m.release_no AND state IN ('queued', 'waiting_approval')
          -- While this waited for the lease the task may have left it (paused) and be back in line (resumed), under the same
          -- release_no: members are seen as they were before the wait, the task's row as it is.
          AND NOT ready AND not_before IS NULL
        FOR UPDATE) t
),
t AS (
    UPDATE task SET
        state = CASE WHEN locked.late THEN 'failed_terminal' ELSE 'running' END,
        finished_at = CASE WHEN locked.late THEN clock_timestamp() END,
        first_claimed_at = CASE WHEN locked.late THEN first_claimed_at ELSE coalesce(first_claimed_at, clock_timestamp()) END,
        event_no = event_no + 1
    FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.public_id, task.tenant_id, task.run_id, task.kind, task.version, task.release_no,
              task.attempts_used, task.postponements, task.lost_starts, task.event_no, task.deadline, task.token_epoch, task.priority,
              locked.late, locked.lease_id, locked.ordinal, locked.degraded, locked.state AS from_state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), CASE WHEN late THEN 'expire' ELSE 'claim' END, from_state,
           CASE WHEN late THEN 'failed_terminal' ELSE 'running' END, %(actor)s,
           CASE WHEN late THEN '{"reason": "expired before it could start"}'::jsonb
                WHEN degraded IS NOT NULL THEN jsonb_build_object('degraded', degraded) END
    FROM t
),
gone AS (
    DELETE FROM lease_member USING t WHERE t.late AND lease_member.task_id = t.id RETURNING lease_member.lease_id
),
c AS (
    -- It never ran: what was charged for it at release is given back.
    INSERT INTO charge (lease_id, pool, priority, lane, tenant_id, run_id, kind, n, slot_s, owed_s)
    SELECT l.id, l.pool, l.priority, l.lane, l.tenant_id, l.run_id, l.kind, 0, 0, -m.n * l.est_s * l.cost
    FROM (SELECT lease_id, count(*) AS n FROM gone GROUP BY lease_id) m JOIN lease l ON l.id = m.lease_id
)
SELECT t.lease_id, t.id, t.public_id, t.tenant_id, t.run_id, t.kind, t.version, t.release_no, t.attempts_used,
       t.postponements, t.lost_starts, b.input, t.late, extract(epoch FROM t.deadline - clock_timestamp())::double precision,
       t.token_epoch, t.priority, extract(epoch FROM clock_timestamp())::double precision, t.degraded
FROM t CROSS JOIN LATERAL (SELECT input FROM task_body WHERE task_id = t.id LIMIT 1) b -- by key, whatever it held when this was planned
ORDER BY t.lease_id, t.ordinal
