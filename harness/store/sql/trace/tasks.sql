-- Tasks that were submitted in a time window or in a run, oldest first, each with its trace events (but for what happened
-- while it ran: wishes, steps).
-- Returns: id, submitted (epoch seconds), tenant, run, kind, pool, priority, signature, events (JSON array of
-- [epoch seconds, event, from, to]). Needs: task_pkey (or task_of_run), event_of_task. Locks: nothing.
-- Cost: for a window it walks the tasks by id; for people, not for the route.
-- Parameters: after (the last task seen), run (public id, or null), since, until (or null), most.
SELECT t.id, extract(epoch FROM t.created_at)::double precision, t.tenant_id, t.run_id, t.kind, t.pool, t.priority,
       t.signature, e.events
FROM task t
CROSS JOIN LATERAL (
    SELECT json_agg(json_build_array(extract(epoch FROM at)::double precision, event, from_state, to_state) ORDER BY seq)
           AS events
    FROM event WHERE task_id = t.id AND (from_state IS DISTINCT FROM 'running' OR to_state <> 'running')
) e
WHERE t.id > %(after)s AND e.events IS NOT NULL
  AND (%(run)s::uuid IS NULL OR t.run_id = (SELECT id FROM run WHERE public_id = %(run)s::uuid))
  AND (%(since)s::timestamptz IS NULL OR t.created_at >= %(since)s)
  AND (%(until)s::timestamptz IS NULL OR t.created_at < %(until)s)
ORDER BY t.id LIMIT %(most)s
