-- The tasks of a run that took longest from their first start to their end, or to now. Returns: see runs.Slow.
-- Needs: task_of_run, task_body_pkey. Locks: nothing. Parameters: run (id), looked (tasks), most.
SELECT s.public_id, s.kind, b.title, s.state, s.holds = '{children}', s.first_claimed_at, s.finished_at
FROM (SELECT id, public_id, kind, state, holds, first_claimed_at, finished_at,
             coalesce(finished_at, clock_timestamp()) - first_claimed_at AS took
      FROM (SELECT * FROM task WHERE run_id = %(run)s AND run_id <> 0 ORDER BY id LIMIT %(looked)s) AS members
      WHERE first_claimed_at IS NOT NULL ORDER BY took DESC, id LIMIT %(most)s) s
LEFT JOIN LATERAL (SELECT title FROM task_body WHERE task_id = s.id LIMIT 1) b ON true
ORDER BY s.took DESC, s.id
