-- Tasks held because no worker knew their kind and version go on when a live session lists it; those whose steps were others
-- than the code's, when a session lists it that began after that was seen (a deployment).
-- A row that somebody has locked is for the next round.
-- Returns: task id. Needs: task_held, step_pkey. Locks: tasks by id. Parameters: limit, actor.
WITH known AS MATERIALIZED (
    SELECT DISTINCT unnest(kinds) AS kind FROM worker_session WHERE ended_at IS NULL AND NOT draining
),
locked AS MATERIALIZED (
    SELECT t.id FROM task t
    WHERE t.holds <> '{}' AND t.holds = ARRAY['version']
      AND t.kind || '@' || t.version IN (SELECT kind FROM known)
      AND NOT EXISTS (
          SELECT FROM step s WHERE s.task_id = t.id AND s.differed_at IS NOT NULL AND NOT EXISTS (
              SELECT FROM worker_session w
              WHERE w.ended_at IS NULL AND NOT w.draining AND w.started_at > s.differed_at
                AND t.kind || '@' || t.version = ANY(w.kinds)))
    ORDER BY t.id LIMIT %(limit)s FOR UPDATE OF t SKIP LOCKED
),
t AS (
    UPDATE task SET state = 'queued', ready = true, ready_at = clock_timestamp(), holds = '{}', event_no = event_no + 1
    FROM locked WHERE task.id = locked.id
    RETURNING task.id, task.tenant_id, task.pool, task.priority, task.run_id, task.signature, task.event_no
),
e AS (
    INSERT INTO event (task_id, tenant_id, seq, at, event, from_state, to_state, actor, data)
    SELECT id, tenant_id, event_no, clock_timestamp(), 'resume', 'paused', 'queued', %(actor)s, '{"hold": "version"}' FROM t
),
f AS (
    INSERT INTO flow (pool, priority, tenant_id, run_id, signature)
    SELECT DISTINCT pool, priority, tenant_id, run_id, signature FROM t
    ON CONFLICT (pool, priority, tenant_id, run_id, signature) DO NOTHING
)
SELECT id FROM t
