-- What must be known of tasks to decide whether they may be sent again. Returns: see ended.Facts, by id.
-- Needs: task_pkey, task_body_pkey, attempt_once, step_pkey. Locks: nothing. Parameters: tasks (ids).
SELECT t.id, t.public_id, t.tenant_id, t.state, t.kind, t.version, t.signature, t.priority, t.token_epoch,
       b.title, b.tags, b.schedule, used.attempts, used.slot_s, used.tokens, used.usd,
       (SELECT count(s.finished_at)::integer FROM step s WHERE s.task_id = t.id)
FROM task t
LEFT JOIN task_body b ON b.task_id = t.id
CROSS JOIN LATERAL (
    SELECT count(*)::integer AS attempts, coalesce(sum(slot_s), 0)::double precision AS slot_s,
           coalesce(sum(tokens), 0)::bigint AS tokens,
           CASE WHEN bool_or(usd IS NULL) THEN NULL ELSE coalesce(sum(usd), 0) END::double precision AS usd
    FROM attempt WHERE task_id = t.id) used
WHERE t.id = ANY(%(tasks)s::bigint[])
ORDER BY t.id
