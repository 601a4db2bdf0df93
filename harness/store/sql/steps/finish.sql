-- Steps have finished: their results, and the trace event step_finished. Fenced by task and release_no, as their begin.
-- What this release has finished before (the answer was lost) is returned again, and nothing is written for it.
-- Returns: task, release_no, ordinal of each that is finished. Needs: task_pkey, step_pkey. Locks: tasks by id.
-- Parameters: tasks, releases, ordinals, results (JSON as text; arrays of one length), actor.
WITH r AS MATERIALIZED (
    SELECT y.*, row_number() OVER (PARTITION BY y.task, y.release_no, y.open ORDER BY y.ordinal) AS nth,
           count(*) FILTER (WHERE y.open) OVER (PARTITION BY y.task, y.release_no) AS n
    FROM (
        SELECT x.*, (SELECT s.finished_at IS NULL FROM step s
                     WHERE s.task_id = x.task AND s.ordinal = x.ordinal AND s.release_no = x.release_no) AS open
        FROM unnest(%(tasks)s::bigint[], %(releases)s::integer[], %(ordinals)s::integer[], %(results)s::text[])
             AS x(task, release_no, ordinal, result)
    ) y
    WHERE y.open IS NOT NULL
),
locked AS MATERIALIZED (
    SELECT t.id, t.release_no, q.n
    FROM (SELECT DISTINCT task, release_no, n FROM r ORDER BY task) q CROSS JOIN LATERAL (
        SELECT id, release_no FROM task WHERE id = q.task AND release_no = q.release_no AND state = 'running' FOR UPDATE) t
),
t AS (
    UPDATE task SET event_no = event_no + locked.n FROM locked WHERE task.id = locked.id AND locked.n > 0
    RETURNING task.id, task.tenant_id, task.release_no, task.event_no - locked.n AS before
),
s AS (
    UPDATE step SET finished_at = clock_timestamp(), result = r.result
    FROM t JOIN r ON r.task = t.id AND r.release_no = t.release_no AND r.open
    WHERE step.task_id = r.task AND step.ordinal = r.ordinal
    RETURNING step.task_id, step.ordinal, step.key, step.name, r.nth, t.tenant_id, t.before,
              extract(epoch FROM step.finished_at - step.began_at) AS seconds
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT s.task_id, s.tenant_id, s.before + s.nth, clock_timestamp(), 'step_finished', 'running', 'running', %(actor)s,
           jsonb_strip_nulls(jsonb_build_object('step', s.name, 'key', nullif(s.key, ''), 'ordinal', s.ordinal,
                                                'seconds', round(s.seconds, 3)))
    FROM s
)
SELECT r.task, r.release_no, r.ordinal FROM r JOIN locked ON locked.id = r.task AND locked.release_no = r.release_no
