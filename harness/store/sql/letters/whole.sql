-- Dead letters by id, with the last of what happened to them (steps apart) and the beginning of their input; no traceback.
-- Returns: see letters.Letter, in no order. Needs: task_pkey, task_body_pkey, tenant_pkey, run_pkey, attempt_once,
-- event_of_task, step_pkey. By the state, not dead_at: that would tempt the planner to read the whole index of the dead while it
-- is small. Locks: nothing. Parameters: tasks (ids), chars (of the input), events, steps (at most).
SELECT t.id, t.public_id, n.name, r.public_id, t.kind, t.version, t.pool, t.priority, t.dead_at, t.created_at,
       coalesce(b.error ->> 'class', 'expired'), coalesce(b.error ->> 'message', 'expired before it could start'),
       t.attempts_used, t.lost_starts, t.token_epoch, b.title, left(b.input::text, %(chars)s), length(b.input::text),
       a.started, a.ended, a.slot_s,
       ARRAY(SELECT jsonb_build_object('seq', e.seq, 'at', e.at, 'event', e.event, 'from_state', e.from_state,
                                       'to_state', e.to_state, 'actor', e.actor, 'data', e.data - 'traceback')
             FROM event e WHERE e.task_id = t.id AND e.event NOT IN ('step_started', 'step_finished', 'steps_replayed')
             ORDER BY e.seq DESC LIMIT %(events)s),
       ARRAY(SELECT jsonb_build_object('ordinal', s.ordinal, 'key', s.key, 'name', s.name, 'began_at', s.began_at,
                                       'finished_at', s.finished_at, 'begun', s.begun)
             FROM step s WHERE s.task_id = t.id ORDER BY s.ordinal DESC LIMIT %(steps)s),
       (SELECT count(s.finished_at)::integer FROM step s WHERE s.task_id = t.id)
FROM task t
LEFT JOIN task_body b ON b.task_id = t.id
LEFT JOIN tenant n ON n.id = t.tenant_id
LEFT JOIN run r ON r.id = t.run_id AND t.run_id <> 0
LEFT JOIN LATERAL (
    SELECT started, ended, slot_s FROM attempt WHERE task_id = t.id ORDER BY release_no DESC LIMIT 1) a ON true
WHERE t.id = ANY(%(tasks)s::bigint[]) AND t.state = 'failed_terminal'
