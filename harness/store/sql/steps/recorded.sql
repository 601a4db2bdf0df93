-- What earlier attempts at a task have recorded. If some of it is finished, one trace event says how much: the attempt
-- replays it. (One an attempt, not one a step: a step that isn't done writes nothing.)
-- Returns: ordinal, key, name, whether it is finished, its result (of the first ones, `bytes` together; else null); in order.
-- Needs: task_pkey, step_pkey. Locks: the task, if it writes. Parameters: task, release_no, bytes, actor.
WITH known AS MATERIALIZED (
    SELECT ordinal, key, name, finished_at IS NOT NULL AS finished,
           CASE WHEN sum(octet_length(result)) OVER (ORDER BY ordinal) <= %(bytes)s THEN result END AS result
    FROM step WHERE task_id = %(task)s
),
t AS (
    UPDATE task SET event_no = event_no + 1
    WHERE id = %(task)s AND release_no = %(release_no)s AND state = 'running' AND EXISTS (SELECT FROM known WHERE finished)
    RETURNING id, tenant_id, event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT t.id, t.tenant_id, t.event_no, clock_timestamp(), 'steps_replayed', 'running', 'running', %(actor)s,
           jsonb_build_object('steps', (SELECT count(*) FROM known WHERE finished))
    FROM t
)
SELECT ordinal, key, name, finished, result FROM known ORDER BY ordinal
