-- For each moment the note on a task's flow (in the priority it had then) that it falls to: the last that began before it,
-- else the first after it. Two descents of an index each, however many reasons there were.
-- Returns, in the order asked: key ("code:subject"), since, until (epoch seconds), before; all null: there is no note.
-- Needs: task_pkey, wait_reason_of_flow. Locks: nothing. Parameters: task (id); priorities, moments (arrays, epoch seconds).
SELECT coalesce(a.key, b.key), coalesce(a.since_s, b.since_s), CASE WHEN a.key IS NULL THEN b.until_s ELSE a.until_s END,
       coalesce(a.before, b.before)
FROM unnest(%(priorities)s::smallint[], %(moments)s::double precision[]) WITH ORDINALITY AS q(priority, at_s, ordinal)
CROSS JOIN LATERAL (SELECT * FROM task WHERE id = %(task)s LIMIT 1) t
LEFT JOIN LATERAL (
    SELECT w.code || ':' || w.subject AS key, extract(epoch FROM w.since)::double precision AS since_s,
           extract(epoch FROM w.until)::double precision AS until_s, w.before
    FROM wait_reason w
    WHERE w.tenant_id = t.tenant_id AND w.run_id = t.run_id AND w.pool = t.pool AND w.priority = q.priority
      AND w.signature = t.signature AND w.since <= to_timestamp(q.at_s)
    ORDER BY w.since DESC, w.id DESC LIMIT 1) a ON true
LEFT JOIN LATERAL (
    SELECT w.code || ':' || w.subject AS key, extract(epoch FROM w.since)::double precision AS since_s,
           extract(epoch FROM w.until)::double precision AS until_s, w.before
    FROM wait_reason w
    WHERE a.key IS NULL AND w.tenant_id = t.tenant_id AND w.run_id = t.run_id AND w.pool = t.pool
      AND w.priority = q.priority AND w.signature = t.signature AND w.since > to_timestamp(q.at_s)
    ORDER BY w.since, w.id LIMIT 1) b ON true
ORDER BY q.ordinal
