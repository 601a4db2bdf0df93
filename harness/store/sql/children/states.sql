-- How a task's children stand, in ranges of ids, in order of birth. Returns: state of each.
-- Needs: task_pkey. Locks: nothing. Parameters: parent, firsts, counts (arrays of one length).
SELECT t.state FROM unnest(%(firsts)s::bigint[], %(counts)s::integer[]) WITH ORDINALITY AS x(first, n, nth)
JOIN task t ON t.id >= x.first AND t.id < x.first + x.n AND t.parent_id = %(parent)s
ORDER BY x.nth, t.id
