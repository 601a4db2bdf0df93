-- The first tasks of a run with what they wait for: the task that spawned each, and those that it depends on.
-- Returns: see runs.Node, in order of birth. Needs: task_of_run, task_body_pkey, dependency_pkey. Locks: nothing.
-- Parameters: run (id), most.
SELECT t.id, t.public_id, t.kind, b.title, t.state, t.holds = '{children}', t.parent_id,
       ARRAY(SELECT on_id FROM dependency WHERE task_id = t.id ORDER BY on_id), t.first_claimed_at, t.finished_at
FROM (SELECT * FROM task WHERE run_id = %(run)s AND run_id <> 0 ORDER BY id LIMIT %(most)s) t
LEFT JOIN LATERAL (SELECT title FROM task_body WHERE task_id = t.id LIMIT 1) b ON true
ORDER BY t.id
