-- Why tasks of a run failed, alike ones together: numbers and ids in a message don't make it another one. No more than
-- `failed` failures are looked at, the oldest tasks first. Returns: see runs.Cause, the most frequent first.
-- Needs: task_of_run, task_body_pkey. Locks: nothing. Parameters: run (id), looked (tasks), failed, shown (ids each), most.
SELECT class, (array_agg(message ORDER BY id))[1], count(*)::integer, (array_agg(public_id ORDER BY id))[1:%(shown)s]
FROM (SELECT f.id, f.public_id, coalesce(b.error ->> 'class', '') AS class, coalesce(left(b.error ->> 'message', 500), '') AS message
      FROM (SELECT id, public_id
            FROM (SELECT * FROM task WHERE run_id = %(run)s AND run_id <> 0 ORDER BY id LIMIT %(looked)s) AS members
            WHERE state = 'failed_terminal' ORDER BY id LIMIT %(failed)s) f
      LEFT JOIN LATERAL (SELECT error FROM task_body WHERE task_id = f.id LIMIT 1) b ON true) AS told
GROUP BY class, regexp_replace(message, '[0-9a-f]{8}-[0-9a-f-]{27}|[0-9]+', '#', 'g')
ORDER BY count(*) DESC, min(id) LIMIT %(most)s
