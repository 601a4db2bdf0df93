-- Lock tasks and see where they stand. Returns: id, state, want, holds, priority, whether it waits for its not_before.
-- Needs: task_pkey. Locks: tasks by id. Parameters: tasks.
-- Which leases they are on must be asked after this, in a statement of its own: a subquery here would still see what was
-- so before the wait for the locks.
SELECT t.id, t.state, t.want, t.holds, t.priority, t.not_before IS NOT NULL
FROM (SELECT DISTINCT unnest(%(tasks)s::bigint[]) AS id ORDER BY id) q
CROSS JOIN LATERAL (SELECT * FROM task WHERE id = q.id FOR UPDATE) t
