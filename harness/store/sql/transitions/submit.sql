-- Insert tasks of one tenant and run, in the order given, each with its body, its trace event and (if ready) its flow.
-- `deferred` (null for most): by the door, until not_before at the latest; why, which the trace keeps.
-- `depends` (null for most): on tasks of the same run, so it isn't ready; `linked`: others wait for its end.
-- `marks` (null for most): title, tags, schedule, scheduled_for, and the terms under which the task is found.
-- Returns: task id, public id. Needs: no index. Locks: nothing but the new rows.
-- Parameters: rows (jsonb array), tenant, run, parent, actor.
WITH r AS MATERIALIZED (
    SELECT nextval('task_id_seq') AS id, x.*
    FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(
        public_id uuid, kind text, version integer, pool text, priority smallint, signature text,
        not_before timestamptz, start_by timestamptz, deadline timestamptz, degrade boolean,
        input jsonb, marks jsonb, deferred text, depends boolean, linked boolean)
),
t AS (
    INSERT INTO task (id, public_id, tenant_id, run_id, parent_id, kind, version, pool, priority, signature,
                      state, ready, not_before, start_by, deadline, degrade, deferred, depends, linked)
    SELECT id, public_id, %(tenant)s, %(run)s, %(parent)s::bigint, kind, version, pool, priority, signature,
           'queued', coalesce(not_before <= now(), true) AND depends IS NOT TRUE,
           CASE WHEN not_before > now() THEN not_before END, start_by, deadline, coalesce(degrade, true),
           coalesce(deferred IS NOT NULL AND not_before > now(), false), coalesce(depends, false),
           coalesce(linked, %(parent)s::bigint IS NOT NULL)
    FROM r
    RETURNING id, public_id, pool, priority, signature, ready
),
b AS (
    INSERT INTO task_body (task_id, tenant_id, input, title, tags, schedule, scheduled_for)
    SELECT id, %(tenant)s, input, marks ->> 'title',
           CASE WHEN marks -> 'tags' IS NOT NULL THEN ARRAY(SELECT jsonb_array_elements_text(marks -> 'tags')) END,
           (marks ->> 'schedule')::uuid, (marks ->> 'scheduled_for')::timestamptz
    FROM r
),
w AS (
    INSERT INTO task_term (tenant_id, term, task_id)
    SELECT %(tenant)s, x.term, r.id FROM r CROSS JOIN LATERAL jsonb_array_elements_text(r.marks -> 'terms') AS x(term)
    WHERE r.marks IS NOT NULL
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, event, to_state, actor, data)
    SELECT id, %(tenant)s, 1, 'submit', 'queued', %(actor)s,
           CASE WHEN deferred IS NOT NULL THEN jsonb_build_object('deferred', deferred) END
    FROM r
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, %(tenant)s::integer, %(run)s::bigint, signature FROM t WHERE ready
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id, public_id FROM t
