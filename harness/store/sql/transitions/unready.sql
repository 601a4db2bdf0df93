-- A task that is on a lease isn't ready. The caller holds the task's lock. Returns: task id. Needs: task_pkey. Parameters: task.
UPDATE task SET ready = false WHERE id = %(task)s AND ready RETURNING id
