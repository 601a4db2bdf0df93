-- Steps begin: a row each (or again, if it was begun and not finished), and the trace event step_started.
-- Fenced by task and release_no: nothing is written for a task that isn't this release's any more, or whose row at that
-- ordinal is another step, or finished.
-- Returns: task, release_no, ordinal of each that began. Needs: task_pkey, step_pkey. Locks: tasks by id.
-- Parameters: tasks, releases, ordinals, keys, names (arrays of one length), actor.
WITH r AS MATERIALIZED (
    SELECT x.*, row_number() OVER (PARTITION BY x.task, x.release_no ORDER BY x.ordinal) AS nth,
           count(*) OVER (PARTITION BY x.task, x.release_no) AS n
    FROM unnest(%(tasks)s::bigint[], %(releases)s::integer[], %(ordinals)s::integer[], %(keys)s::text[], %(names)s::text[])
         AS x(task, release_no, ordinal, key, name)
    WHERE NOT EXISTS (
        SELECT FROM step s WHERE s.task_id = x.task AND s.ordinal = x.ordinal
        AND (s.finished_at IS NOT NULL OR s.key <> x.key OR s.name <> x.name))
),
locked AS MATERIALIZED (
    SELECT t.id, t.release_no, q.n
    FROM (SELECT task, release_no, n FROM r WHERE nth = 1 ORDER BY task) q CROSS JOIN LATERAL (
        SELECT id, release_no FROM task WHERE id = q.task AND release_no = q.release_no AND state = 'running' FOR UPDATE) t
),
t AS (
    UPDATE task SET event_no = event_no + locked.n FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.release_no, task.event_no - locked.n AS before
),
s AS (
    INSERT INTO step (task_id, tenant_id, ordinal, key, name, release_no, began_at)
    SELECT t.id, t.tenant_id, r.ordinal, r.key, r.name, r.release_no, clock_timestamp()
    FROM t JOIN r ON r.task = t.id AND r.release_no = t.release_no
    ON CONFLICT (task_id, ordinal) DO UPDATE
    SET release_no = excluded.release_no, began_at = excluded.began_at, begun = step.begun + 1, differed_at = NULL
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT t.id, t.tenant_id, t.before + r.nth, clock_timestamp(), 'step_started', 'running', 'running', %(actor)s,
           jsonb_strip_nulls(jsonb_build_object('step', r.name, 'key', nullif(r.key, ''), 'ordinal', r.ordinal))
    FROM t JOIN r ON r.task = t.id AND r.release_no = t.release_no
)
SELECT r.task, r.release_no, r.ordinal FROM t JOIN r ON r.task = t.id AND r.release_no = t.release_no
