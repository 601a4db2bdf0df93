-- Tasks of a run that aren't in line, by what they wait for: nobody can tell when a run ends that has such.
-- Returns: undecided (a decision), held (a hold; their children), depending (others of the run).
-- Needs: task_of_run (with finished_at IS NULL the index of all live tasks would do, too), dependency_unmet, lease_member_pkey.
-- Locks: none. Parameters: run.
SELECT count(*) FILTER (WHERE t.state = 'waiting_approval' AND NOT EXISTS (SELECT FROM lease_member m WHERE m.task_id = t.id))::integer,
       count(*) FILTER (WHERE t.state = 'paused')::integer,
       count(*) FILTER (WHERE t.state = 'queued' AND EXISTS (SELECT FROM dependency d WHERE d.task_id = t.id AND NOT d.met))::integer
FROM task t
WHERE t.run_id = %(run)s AND t.run_id <> 0 AND (t.finished_at IS NULL)::integer = 1 AND NOT t.ready
