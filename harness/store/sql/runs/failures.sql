-- Why tasks of a run failed, alike ones together: numbers and ids in a message don't make it another one. Behind them
-- those that were cancelled because of others, by class alone. No more than `failed` tasks are looked at, failures and
-- the oldest first. Returns: see runs.Cause, failures and the most frequent first.
-- Needs: task_of_run, task_body_pkey. Locks: nothing. Parameters: run (id), looked (tasks), failed, shown (ids each), most.
SELECT state, class, (array_agg(message ORDER BY id))[1], count(*)::integer, (array_agg(public_id ORDER BY id))[1:%(shown)s]
FROM (SELECT f.id, f.public_id, f.state, coalesce(b.error ->> 'class', '') AS class,
             CASE WHEN f.state = 'cancelled' THEN '' ELSE coalesce(left(b.error ->> 'message', 500), '') END AS message
      FROM (SELECT id, public_id, state
            FROM (SELECT * FROM task WHERE run_id = %(run)s AND run_id <> 0 ORDER BY id LIMIT %(looked)s) AS members
            WHERE state IN ('failed_terminal', 'cancelled') ORDER BY state = 'cancelled', id LIMIT %(failed)s) f
      LEFT JOIN LATERAL (SELECT error FROM task_body WHERE task_id = f.id LIMIT 1) b ON true) AS told
WHERE state <> 'cancelled' OR class <> ''
GROUP BY state, class, regexp_replace(message, '[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+', '#', 'g')
ORDER BY state = 'cancelled', count(*) DESC, min(id) LIMIT %(most)s
