-- End attempts of claimed leases: the task's next state, trace event, attempt, body, flow, charge; the member goes,
-- and the lease with its last member. Fenced by lease, token and session: a stale worker settles nothing.
-- A wish (`want`) turns every exit but succeed and bury into abort or halt.
-- Returns: task id, state of each task settled, whether the dispatcher sleeps (asked here, it costs no trip of its own).
-- Needs: lease_pkey, lease_member_pkey, task_pkey. Locks: leases by id, then tasks by id.
-- Parameters: leases, tokens, keeps (arrays: keep = the thread still runs, a zombie), session, actor; zombie_s (most seconds
-- that a zombie, which goes, is charged);
-- outcomes (jsonb array, each with its lease).
WITH r AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(outcomes)s::jsonb) AS x(
        lease bigint, task bigint, release_no integer, event text, to_state text, hold text, delay_s double precision,
        spends integer, output jsonb, error jsonb, error_class text, message text, traceback text,
        slot_s double precision, tokens bigint, usd double precision, data jsonb)
),
l AS MATERIALIZED (
    SELECT lease.id, lease.pool, lease.priority, lease.lane, lease.tenant_id, lease.run_id, lease.kind, lease.est_s,
           lease.cost, lease.zombie_since, lease.degraded, q.keep,
           -- Nobody else has the slot from its release on: what a task owes begins there, what it took at its claim.
           -- (An unclaimed lease is taken back after ten seconds; a step of the server's clock is no service.)
           least(greatest(date_part('epoch', lease.claimed_at - lease.released_at), 0), 10) / lease.n AS lead_s
    FROM unnest(%(leases)s::bigint[], %(tokens)s::bigint[], %(keeps)s::boolean[]) AS q(id, token, keep)
    JOIN lease ON lease.id = q.id AND lease.token = q.token
    WHERE lease.session = %(session)s
    ORDER BY lease.id FOR UPDATE OF lease
),
gone AS MATERIALIZED (
    -- By task, not by lease: the outcomes of a flush are a part of the lease's members.
    DELETE FROM lease_member m USING r, l
    WHERE m.lease_id + 0 = r.lease AND l.id = r.lease AND m.task_id = r.task AND m.release_no = r.release_no
    RETURNING r.*, l.degraded
),
locked AS MATERIALIZED (
    SELECT t.id, t.want, gone.*,
        CASE WHEN t.want IS NULL OR gone.event IN ('succeed', 'bury') THEN gone.event
             WHEN t.want = 'cancel' THEN 'abort' ELSE 'halt' END AS really,
        CASE WHEN t.want IS NULL OR gone.event IN ('succeed', 'bury') THEN gone.to_state
             WHEN t.want = 'cancel' THEN 'cancelled' ELSE 'paused' END AS goes_to
    FROM (SELECT * FROM gone ORDER BY task) gone CROSS JOIN LATERAL (
        SELECT id, want FROM task WHERE id = gone.task AND state = 'running' FOR UPDATE) t
),
t AS (
    UPDATE task SET
        state = locked.goes_to,
        ready = locked.goes_to = 'queued' AND locked.delay_s IS NULL,
        not_before = CASE WHEN locked.goes_to IN ('queued', 'failed_retryable') AND locked.delay_s IS NOT NULL
                          THEN clock_timestamp() + make_interval(secs => locked.delay_s) END,
        holds = CASE WHEN locked.really = 'halt' THEN string_to_array(substr(locked.want, 7), ',') -- after 'pause:'
                     WHEN locked.goes_to = 'paused' THEN ARRAY[locked.hold] ELSE '{}' END,
        want = NULL,
        start_by = NULL,
        deadline = CASE WHEN locked.goes_to IN ('succeeded', 'failed_terminal', 'cancelled') THEN NULL ELSE deadline END,
        attempts_used = attempts_used + CASE WHEN locked.really = locked.event THEN locked.spends ELSE 0 END,
        postponements = CASE WHEN locked.really = 'postpone' THEN postponements + 1 ELSE postponements END,
        finished_at = CASE WHEN locked.goes_to IN ('succeeded', 'failed_terminal', 'cancelled') THEN clock_timestamp() END,
        event_no = event_no + 1
    FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.event_no,
              task.release_no, locked.really, locked.goes_to, locked.output, locked.error, locked.error_class,
              locked.message, locked.traceback, locked.slot_s, locked.tokens, locked.usd, locked.data, locked.lease,
              locked.degraded
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), really, 'running', goes_to, %(actor)s, data FROM t
),
a AS (
    INSERT INTO attempt (task_id, tenant_id, release_no, session, started, ended, verdict, error_class, message,
                         traceback, slot_s, tokens, usd, degraded)
    SELECT id, tenant_id, release_no, %(session)s, clock_timestamp() - make_interval(secs => slot_s), clock_timestamp(),
           really, error_class, message, traceback, slot_s, coalesce(tokens, 0), usd, degraded
    FROM t
),
b AS (
    UPDATE task_body SET output = t.output, error = t.error
    FROM t WHERE task_body.task_id = t.id AND (t.output IS NOT NULL OR t.error IS NOT NULL)
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
),
c AS (
    INSERT INTO charge (lease_id, pool, priority, lane, tenant_id, run_id, kind, n, slot_s, owed_s, cost_s)
    SELECT l.id, l.pool, l.priority, l.lane, l.tenant_id, l.run_id, l.kind, used.n, used.slot_s,
           (used.slot_s + used.n * (l.lead_s - l.est_s)) * l.cost, used.slot_s * l.cost
    FROM l JOIN (SELECT lease, count(*) AS n, sum(slot_s) AS slot_s FROM t GROUP BY lease) used ON used.lease = l.id
    UNION ALL
    -- What its tasks used was charged when they were settled from outside; the slot was held on.
    SELECT id, pool, priority, lane, tenant_id, run_id, kind, 0, held_s, held_s * cost, held_s * cost
    FROM (SELECT l.*, least(date_part('epoch', clock_timestamp() - zombie_since), %(zombie_s)s::double precision) AS held_s
          FROM l WHERE zombie_since IS NOT NULL AND NOT keep) zombie
),
rest AS MATERIALIZED (
    SELECT l.id, l.keep, (SELECT count(*) FROM lease_member m WHERE m.lease_id = l.id)
           - (SELECT count(*) FROM gone WHERE gone.lease = l.id) AS n
    FROM l
),
z AS (
    DELETE FROM lease USING rest WHERE lease.id = rest.id AND rest.n = 0 AND NOT rest.keep
),
k AS (
    UPDATE lease SET zombie_since = coalesce(zombie_since, clock_timestamp())
    FROM rest WHERE lease.id = rest.id AND rest.n = 0 AND rest.keep
)
SELECT id, goes_to, (SELECT sleeping FROM leader WHERE id = 1) FROM t
