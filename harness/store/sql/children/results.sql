-- What a task's children returned, or why they didn't, in ranges of ids, in order of birth.
-- Returns: public id, kind, output, error (JSON as text) of each. Needs: task_pkey, task_body_pkey. Locks: nothing.
-- Parameters: parent, firsts, counts (arrays of one length).
SELECT t.public_id, t.kind, b.output::text, b.error::text
FROM unnest(%(firsts)s::bigint[], %(counts)s::integer[]) WITH ORDINALITY AS x(first, n, nth)
JOIN task t ON t.id >= x.first AND t.id < x.first + x.n AND t.parent_id = %(parent)s
LEFT JOIN LATERAL (SELECT output, error FROM task_body WHERE task_id = t.id LIMIT 1) b ON true
ORDER BY x.nth, t.id
