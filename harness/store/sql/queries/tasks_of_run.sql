-- The tasks that a run was submitted with, in that order. Returns: public id. Needs: task_of_run.
-- Parameters: run (public id).
SELECT t.public_id FROM task t
WHERE t.run_id = (SELECT id FROM run WHERE public_id = %(run)s) AND t.run_id <> 0 AND t.parent_id IS NULL ORDER BY t.id
