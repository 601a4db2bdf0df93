-- What binds a task's flow now, by its open note, with what a reader needs beside it.
-- Returns: the time (epoch seconds); since when no dispatcher leads (epoch seconds; 0: nobody knows; null: one leads,
-- or led 5 s ago: a standby takes over in that time); code, subject, facts, since of
-- the open note (null: none); places, free ones and waiting tenants of the pool; the same two of quarantine; how many tasks
-- of the flow are before it, up to `most` + 1; lost_starts.
-- Needs: task_pkey, wait_reason_open, pool_now_pkey, task_head. Locks: nothing. Parameters: task (id), most.
SELECT extract(epoch FROM clock_timestamp())::double precision,
       (SELECT CASE WHEN until > clock_timestamp() - interval '5 s' THEN NULL ELSE extract(epoch FROM until)::double precision END
        FROM (SELECT coalesce((SELECT until FROM leader WHERE id = 1), 'epoch') AS until) l),
       w.code, w.subject, w.facts, extract(epoch FROM w.since)::double precision,
       p.slots, p.free, p.tenants, q.slots, q.free,
       CASE WHEN t.ready THEN (SELECT count(*)::integer FROM (
           SELECT FROM task o WHERE o.ready AND o.pool = t.pool AND o.priority = t.priority AND o.tenant_id = t.tenant_id
           AND o.run_id = t.run_id AND o.signature = t.signature AND o.id < t.id LIMIT %(most)s::integer + 1) o) ELSE 0 END,
       t.lost_starts
FROM task t
LEFT JOIN LATERAL (
    SELECT code, subject, facts, since FROM wait_reason w
    WHERE w.until IS NULL AND w.tenant_id = t.tenant_id AND w.run_id = t.run_id AND w.pool = t.pool
      AND w.priority = t.priority AND w.signature = t.signature LIMIT 1) w ON true
LEFT JOIN LATERAL (SELECT slots, free, tenants FROM pool_now WHERE pool = t.pool LIMIT 1) p ON true
LEFT JOIN LATERAL (SELECT slots, free FROM pool_now WHERE pool = 'quarantine' LIMIT 1) q ON true
WHERE t.id = %(task)s
