-- How far a task has come: how many steps it has finished, and the last that began and hasn't (of a parallel many: one).
-- Returns: finished, begun, name of that step or null. Needs: step_pkey. Parameters: task (id).
SELECT count(finished_at), count(*), (array_agg(name ORDER BY ordinal DESC) FILTER (WHERE finished_at IS NULL))[1]
FROM step WHERE task_id = %(task)s
