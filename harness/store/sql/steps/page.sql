-- A task's steps after one, in the order in which they began first. Returns: see steps.StepView.
-- Needs: step_pkey. Parameters: task (id), after (ordinal), most.
SELECT ordinal, key, name, began_at, finished_at, begun, octet_length(result), differed_at IS NOT NULL
FROM step WHERE task_id = %(task)s AND ordinal > %(after)s ORDER BY ordinal LIMIT %(most)s
