-- Children that were cancelled only because their parent had ended; it has been sent again since. Ranges of ids.
-- Returns: task id, version, pool, signature. Needs: task_pkey, task_body_pkey. Locks: nothing.
-- Parameters: parent, firsts, counts (arrays of one length).
SELECT t.id, t.version, t.pool, t.signature
FROM unnest(%(firsts)s::bigint[], %(counts)s::integer[]) AS x(first, n)
JOIN task t ON t.id >= x.first AND t.id < x.first + x.n AND t.parent_id = %(parent)s
CROSS JOIN LATERAL (SELECT error FROM task_body WHERE task_id = t.id LIMIT 1) b -- never a join of the whole of it
WHERE t.state = 'cancelled' AND b.error ->> 'class' = 'parent_ended'
ORDER BY t.id
