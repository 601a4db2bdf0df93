-- Send ended tasks again: queued and ready, with what counts against them at 0, without output and error. release_no,
-- the fence, stays. One that depends on tasks which haven't succeeded waits for them again. With another input (`changed`): that input, another token (token_epoch + 1), other words to be found
-- by; the steps that the old input had are dropped. What ended meanwhile in another way, or was sent again by someone else, is left as it is.
-- Returns: task id, token_epoch of each task sent. Needs: task_pkey, task_body_pkey, task_term_of_task, step_pkey,
-- approval_once, dependency_unmet.
-- Locks: tasks by id. An ended task is on no lease. Parameters: rows (jsonb array), actor, reason.
WITH r AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(
        task bigint, version integer, pool text, signature text, start_by timestamptz, changed boolean, input jsonb,
        terms jsonb)
),
locked AS MATERIALIZED (
    SELECT t.id, t.state AS from_state, r.*,
           EXISTS (SELECT FROM dependency d WHERE d.task_id = r.task AND NOT d.met) AS depends
    FROM (SELECT * FROM r ORDER BY task) r CROSS JOIN LATERAL (
        SELECT id, state FROM task
        WHERE id = r.task AND state IN ('failed_terminal', 'cancelled') AND (r.changed OR version = r.version)
        FOR UPDATE) t
),
t AS (
    UPDATE task SET
        state = 'queued', ready = NOT locked.depends, depends = locked.depends, ready_at = clock_timestamp(), holds = '{}', want = NULL, single = false,
        version = locked.version, pool = locked.pool, signature = locked.signature,
        attempts_used = 0, lost_starts = 0, postponements = 0,
        not_before = NULL, deferred = false, start_by = locked.start_by, deadline = NULL, first_claimed_at = NULL,
        finished_at = NULL,
        token_epoch = token_epoch + CASE WHEN locked.changed THEN 1 ELSE 0 END,
        event_no = event_no + 1
    FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.event_no,
              task.token_epoch, locked.from_state, locked.changed, locked.input, locked.terms
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'redrive', from_state, 'queued', %(actor)s,
           jsonb_strip_nulls(jsonb_build_object(
               'reason', nullif(%(reason)s::text, ''), 'input', CASE WHEN changed THEN 'changed' ELSE 'kept' END,
               'token_epoch', CASE WHEN changed THEN token_epoch END,
               CASE WHEN changed THEN 'steps_dropped' ELSE 'steps_kept' END,
               (SELECT nullif(count(s.finished_at), 0) FROM step s WHERE s.task_id = t.id)))
    FROM t
),
s AS (
    DELETE FROM step USING t WHERE step.task_id = t.id AND t.changed
),
q AS (
    -- Asked anew, unless a finished step has the answer.
    DELETE FROM approval USING t WHERE approval.task_id = t.id AND (t.changed OR NOT EXISTS (
        SELECT FROM step s
        WHERE s.task_id = t.id AND s.ordinal = approval.ordinal AND s.finished_at IS NOT NULL))
),
b AS (
    UPDATE task_body SET input = CASE WHEN t.changed THEN t.input ELSE task_body.input END, output = NULL, error = NULL
    FROM t WHERE task_body.task_id = t.id
),
d AS (
    DELETE FROM task_term USING t WHERE task_term.task_id = t.id AND t.terms IS NOT NULL AND NOT t.terms ? task_term.term
),
w AS (
    INSERT INTO task_term (tenant_id, term, task_id)
    SELECT t.tenant_id, x.term, t.id FROM t CROSS JOIN LATERAL jsonb_array_elements_text(t.terms) AS x(term)
    WHERE t.terms IS NOT NULL
    ON CONFLICT (tenant_id, term, task_id) DO NOTHING
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id, token_epoch FROM t
