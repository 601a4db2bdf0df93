-- Lock one task. Which lease it is on must be asked after this, in a statement of its own: here it could be what was so
-- before the wait for the lock. Returns: state. Needs: task_pkey. Locks: the task. Parameters: task.
SELECT state FROM task WHERE id = %(task)s FOR UPDATE
