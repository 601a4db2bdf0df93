-- Say of a running task that it has children, so that they are told when it ends. Fenced by task and release_no.
-- Returns: nothing. Needs: task_pkey. Locks: the task. Parameters: task, release_no.
UPDATE task SET linked = true
WHERE id = %(task)s AND release_no = %(release_no)s AND state = 'running' AND NOT linked
