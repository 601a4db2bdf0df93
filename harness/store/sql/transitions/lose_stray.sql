-- A running task whose lease is gone goes back in line, singly; or where a wish says. Nobody knows what became of its
-- worker, so nothing is charged. The caller holds the task's lock and has seen under it that no lease has it.
-- Returns: state. Needs: task_pkey, attempt_once. Parameters: task, actor, reason.
WITH t AS (
    UPDATE task SET
        state = CASE WHEN old.want = 'cancel' THEN 'cancelled' WHEN old.want IS NOT NULL THEN 'paused' ELSE 'queued' END,
        ready = old.want IS NULL, not_before = NULL, start_by = NULL, want = NULL, single = true,
        holds = CASE WHEN starts_with(old.want, 'pause:') THEN string_to_array(substr(old.want, 7), ',') ELSE '{}' END,
        deadline = CASE WHEN old.want = 'cancel' THEN NULL ELSE deadline END,
        finished_at = CASE WHEN old.want = 'cancel' THEN clock_timestamp() END,
        event_no = event_no + 1
    FROM (SELECT id, want FROM task WHERE id = %(task)s) old
    WHERE task.id = old.id AND task.state = 'running'
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.ready, task.state,
              task.event_no, task.release_no, task.first_claimed_at,
              CASE WHEN old.want = 'cancel' THEN 'abort' WHEN old.want IS NOT NULL THEN 'halt' ELSE 'lose' END AS event
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), event, 'running', state, %(actor)s,
           jsonb_build_object('class', 'lost', 'reason', %(reason)s::text)
    FROM t
),
a AS (
    INSERT INTO attempt (task_id, tenant_id, release_no, ended, verdict, error_class, message)
    SELECT id, tenant_id, release_no, clock_timestamp(), event, 'lost', %(reason)s::text FROM t
    ON CONFLICT (task_id, release_no) DO NOTHING
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT pool, priority, tenant_id, run_id, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT state FROM t
