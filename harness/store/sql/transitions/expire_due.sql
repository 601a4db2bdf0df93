-- Tasks past their start_by that never began, or past their deadline and not running, fail as expired; so do those in line
-- whose deadline comes before half of what their kind takes: dead work is never started (policy.md, R6).
-- Released ones are left to the claim, which checks the same; a row that somebody has locked, to the next round.
-- Returns: task id.
-- Needs: task_start_by, task_deadline, approval_once. Locks: tasks by id. Parameters: limit, actor.
WITH due AS MATERIALIZED (
    (SELECT id FROM task WHERE ready AND start_by <= clock_timestamp() ORDER BY start_by LIMIT %(limit)s)
    UNION
    (SELECT id FROM task WHERE deadline <= clock_timestamp() ORDER BY deadline LIMIT %(limit)s)
    UNION
    -- The nearest deadlines alone: what is further ahead comes nearer, and the claim looks again.
    (SELECT t.id FROM (
        SELECT id, kind, deadline FROM task
        WHERE ready AND deadline <= statement_timestamp() + make_interval(secs => (SELECT max(mean_s) FROM estimate) * 0.5)
        ORDER BY deadline LIMIT %(limit)s * 4) t
     JOIN estimate e ON e.kind = t.kind WHERE t.deadline <= clock_timestamp() + make_interval(secs => e.mean_s * 0.5))
),
seen AS MATERIALIZED (
    -- Which of them wait for a decision that nobody has made: like the released ones they are not ready, without a time.
    -- One row each, by key: a plan that was made for few tasks must not read all of many.
    SELECT due.id, t.release_no, CASE WHEN t.state = 'waiting_approval' THEN EXISTS (
               SELECT FROM approval a WHERE a.task_id = due.id AND a.open) ELSE false END AS undecided
    FROM due CROSS JOIN LATERAL (SELECT release_no, state FROM task WHERE id = due.id LIMIT 1) t
),
locked AS MATERIALIZED (
    SELECT t.id, t.state FROM (SELECT * FROM seen ORDER BY id) due CROSS JOIN LATERAL (
        SELECT id, state FROM task
        WHERE id = due.id
          AND CASE WHEN state = 'queued' AND first_claimed_at IS NULL AND start_by <= clock_timestamp() THEN true
                   WHEN state = 'queued' AND ready
                   THEN coalesce(deadline <= clock_timestamp() + make_interval(secs => coalesce(
                        (SELECT mean_s FROM estimate WHERE estimate.kind = task.kind), 0) * 0.5), false)
                   WHEN state IN ('queued', 'waiting_approval', 'paused', 'failed_retryable')
                   THEN coalesce(deadline <= clock_timestamp(), false) ELSE false END
          -- Released and unclaimed is queued, not ready, without not_before and without dependencies. Only columns of the row are read again
          -- after a wait for its lock, so the lease itself can't be asked here.
          AND (ready OR depends OR not_before IS NOT NULL OR state IN ('paused', 'failed_retryable')
               OR (due.undecided AND release_no = due.release_no)) -- else it was decided and released since
        FOR UPDATE SKIP LOCKED) t
),
t AS (
    UPDATE task SET state = 'failed_terminal', ready = false, holds = '{}', not_before = NULL, start_by = NULL,
                    deadline = NULL, finished_at = clock_timestamp(), event_no = event_no + 1
    FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.event_no, locked.state AS from_state
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'expire', from_state, 'failed_terminal', %(actor)s,
           '{"reason": "its time was over before it could run"}'
    FROM t
),
q AS (
    UPDATE approval SET open = false, notify_after = NULL
    FROM t WHERE approval.task_id = t.id AND approval.open AND t.from_state IN ('waiting_approval', 'paused')
),
b AS (
    UPDATE task_body SET error = '{"class": "expired", "message": "its time was over before it could run"}'
    FROM t WHERE task_body.task_id = t.id
)
SELECT id FROM t
