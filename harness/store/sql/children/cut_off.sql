-- Children that were cancelled only because their parent had ended; it has been sent again since. Ranges of ids.
-- Returns: task id, version, pool, signature. Needs: task_pkey, task_body_pkey. Locks: nothing.
-- Parameters: parent, firsts, counts (arrays of one length).
SELECT t.id, t.version, t.pool, t.signature
FROM unnest(%(firsts)s::bigint[], %(counts)s::integer[]) AS x(first, n)
JOIN task t ON t.id >= x.first AND t.id < x.first + x.n AND t.parent_id = %(parent)s
JOIN task_body b ON b.task_id = t.id
WHERE t.state = 'cancelled' AND b.error ->> 'class' = 'parent_ended'
ORDER BY t.id
