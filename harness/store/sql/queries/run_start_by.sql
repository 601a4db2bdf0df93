-- When the first of a run's tasks that haven't begun expires. Returns: a time, or null. Needs: run's unique index on
-- public_id, task_of_run. Parameters: run (public id).
SELECT min(t.start_by) FROM task t
WHERE t.run_id = (SELECT id FROM run WHERE public_id = %(run)s) AND t.run_id <> 0 AND t.first_claimed_at IS NULL
