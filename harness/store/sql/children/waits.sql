-- What a task waits for of others: live children among those that it gathers, tasks that it depends on (those that have
-- failed apart). Returns: children, total, need; dependencies, failed. Needs: task_of_parent, gathering_pkey, dependency_unmet, task_pkey.
-- Locks: nothing. Parameters: task.
SELECT coalesce((SELECT count(*) FROM gathering g CROSS JOIN LATERAL unnest(g.firsts, g.counts) AS x(first, n)
                 JOIN task c ON c.parent_id = g.task_id AND (c.finished_at IS NULL)::integer = 1 AND c.id >= x.first AND c.id < x.first + x.n
                 WHERE g.task_id = %(task)s), 0)::integer,
       (SELECT total FROM gathering WHERE task_id = %(task)s), (SELECT need FROM gathering WHERE task_id = %(task)s),
       (SELECT count(*) FROM dependency WHERE task_id = %(task)s AND NOT met)::integer,
       (SELECT count(*) FROM dependency d CROSS JOIN LATERAL (SELECT state, finished_at FROM task WHERE id = d.on_id LIMIT 1) p
        WHERE d.task_id = %(task)s AND NOT d.met AND p.finished_at IS NOT NULL AND p.state <> 'succeeded')::integer
