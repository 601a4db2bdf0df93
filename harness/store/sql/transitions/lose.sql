-- Take back the tasks of leases whose worker is gone (a session that ended, or a prefork child that died). What a lease held
-- until now is charged for, up to its time limit (a zombie: zombie_s); it says nothing about how long a task takes (n = 0).
-- Singly released and lost: lost_starts + 1; a bundle charges nobody and comes back singly. A loss in quarantine buries:
-- that of its process at once, that of the whole worker (which may have died of something else) the second time.
-- A lease that somebody has locked, itself or a task of it, is for the next round: it must not hold up the others.
-- A loss past the task's time limit is a time-out: it spends an attempt, and is buried when none is left.
-- A wish turns the loss into abort or halt (its holds stand in it) and charges nobody: a child that doesn't obey a wish is
-- ended by its parent. Zombie leases have no members: they just go.
-- Returns: task id, state, event, release_no (of the attempt that is lost) of each task taken back.
-- Needs: lease_pkey (a scan: few rows), lease_member_of_lease, lease_member_pkey, task_pkey.
-- Locks: leases by id, then tasks by id.
-- Parameters: session (or null: all that ended), dead_pids (of that session), limit, zombie_s, max_attempts (jsonb: kind -> number),
-- retry_delay_s, quarantined_at (lost starts that lead to quarantine), actor.
WITH l AS MATERIALIZED (
    SELECT id, pool, via, priority, lane, tenant_id, run_id, kind, session, n, est_s, cost, claimed_at, zombie_since,
           timeout_s, degraded
    FROM lease
    WHERE claimed_at IS NOT NULL AND (
        (%(session)s::uuid IS NULL AND EXISTS (
            SELECT FROM worker_session s WHERE s.uuid = lease.session AND s.ended_at IS NOT NULL))
        OR (session = %(session)s::uuid AND pid = ANY(%(dead_pids)s::integer[])))
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
tried AS MATERIALIZED (
    SELECT m.task_id, m.release_no, m.lease_id, t.id, t.want, t.kind, t.attempts_used, t.lost_starts
    FROM (SELECT m.* FROM l JOIN lease_member m ON m.lease_id = l.id ORDER BY m.task_id) m LEFT JOIN LATERAL (
        SELECT id, want, kind, attempts_used, lost_starts FROM task
        WHERE id = m.task_id AND release_no = m.release_no AND state = 'running' FOR UPDATE SKIP LOCKED) t ON true
),
busy AS MATERIALIZED (
    SELECT array(SELECT lease_id FROM tried WHERE id IS NULL AND EXISTS (
        SELECT FROM task WHERE task.id = tried.task_id AND task.release_no = tried.release_no AND state = 'running'))
        AS leases
),
free AS MATERIALIZED (
    SELECT l.* FROM l CROSS JOIN busy WHERE NOT l.id = ANY(busy.leases)
),
m AS (
    DELETE FROM lease_member USING tried, free
    WHERE lease_member.task_id = tried.task_id AND lease_member.lease_id = tried.lease_id AND tried.lease_id = free.id
),
locked AS MATERIALIZED (
    SELECT t.id, t.want, l.session, l.degraded, l.n = 1 AS alone,
           l.via IS NOT NULL AND (%(session)s::uuid IS NOT NULL OR t.lost_starts >= %(quarantined_at)s + 1) AS guilty,
           extract(epoch FROM clock_timestamp() - l.claimed_at)::double precision AS slot_s,
           %(session)s::uuid IS NOT NULL AND clock_timestamp() >= l.claimed_at + make_interval(secs => l.timeout_s) AS overdue,
           coalesce((%(max_attempts)s::jsonb ->> t.kind)::integer, 4) <= t.attempts_used + 1 AS spent
    FROM tried t JOIN free l ON l.id = t.lease_id WHERE t.id IS NOT NULL
),
decided AS MATERIALIZED (
    SELECT locked.*,
        CASE WHEN overdue AND spent THEN 'bury'
             WHEN guilty AND NOT overdue AND want IS NULL THEN 'bury'
             WHEN want = 'cancel' THEN 'abort' WHEN want IS NOT NULL THEN 'halt'
             WHEN overdue THEN 'fail' ELSE 'lose' END AS event
    FROM locked
),
t AS (
    UPDATE task SET
        state = CASE decided.event WHEN 'bury' THEN 'failed_terminal' WHEN 'abort' THEN 'cancelled' WHEN 'halt' THEN 'paused'
                                   WHEN 'fail' THEN 'failed_retryable' ELSE 'queued' END,
        ready = decided.event = 'lose',
        not_before = CASE WHEN decided.event = 'fail' THEN clock_timestamp() + make_interval(secs => %(retry_delay_s)s) END,
        holds = CASE WHEN decided.event = 'halt' THEN string_to_array(substr(decided.want, 7), ',') ELSE '{}' END,
        want = NULL,
        start_by = NULL,
        single = true,
        lost_starts = lost_starts + CASE WHEN alone AND NOT overdue AND decided.want IS NULL THEN 1 ELSE 0 END,
        attempts_used = attempts_used + CASE WHEN overdue THEN 1 ELSE 0 END,
        deadline = CASE WHEN decided.event IN ('bury', 'abort') THEN NULL ELSE deadline END,
        finished_at = CASE WHEN decided.event IN ('bury', 'abort') THEN clock_timestamp() END,
        event_no = event_no + 1
    FROM decided WHERE task.id = decided.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.state,
              task.event_no, task.release_no, task.lost_starts, decided.event, decided.session, decided.slot_s, decided.overdue,
              decided.degraded,
              CASE WHEN decided.overdue THEN 'timeout' ELSE 'lost' END AS error_class,
              CASE WHEN decided.overdue THEN 'it ran past its time limit and its process was stopped'
                   WHEN decided.event = 'bury'
                   THEN 'its process died while it ran alone in quarantine, after ' || lost_starts - 1
                        || ' workers that were lost with it: it is taken for the cause'
                   ELSE 'its worker died while it ran' END AS message
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), event, 'running', state, %(actor)s,
           jsonb_build_object('class', error_class, 'reason', message, 'lost_starts', lost_starts)
    FROM t
),
a AS (
    INSERT INTO attempt (task_id, tenant_id, release_no, session, started, ended, verdict, error_class, message, slot_s, degraded)
    SELECT id, tenant_id, release_no, session, clock_timestamp() - make_interval(secs => slot_s), clock_timestamp(),
           event, error_class, message, slot_s, degraded
    FROM t
),
b AS (
    UPDATE task_body SET error = jsonb_build_object('class', t.error_class, 'message', t.message)
    FROM t WHERE task_body.task_id = t.id AND t.event IN ('bury', 'fail')
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
),
c AS (
    INSERT INTO charge (lease_id, pool, priority, lane, tenant_id, run_id, kind, n, slot_s, owed_s, cost_s)
    SELECT id, pool, priority, lane, tenant_id, run_id, kind, 0, held_s, (held_s - members * est_s) * cost, held_s * cost
    FROM (SELECT free.*, (SELECT count(*) FROM tried WHERE tried.lease_id = free.id) AS members,
                 least(extract(epoch FROM clock_timestamp() - coalesce(zombie_since, claimed_at))::double precision,
                       CASE WHEN zombie_since IS NULL THEN timeout_s ELSE %(zombie_s)s::double precision END) AS held_s
          FROM free) ended
),
z AS (
    DELETE FROM lease USING free WHERE lease.id = free.id
)
SELECT id, state, event, release_no FROM t
