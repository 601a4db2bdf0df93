-- Lock a task and see where it stands. Returns: state, want. Needs: task_pkey. Locks: the task. Parameters: task.
-- Which lease it is on must be asked after this, in a statement of its own: a subquery here would still see what was
-- so before the wait for the lock.
SELECT state, want FROM task WHERE id = %(task)s FOR UPDATE
