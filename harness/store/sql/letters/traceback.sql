-- The traceback of a task's last attempt: for operators. Returns: traceback. Needs: attempt_once. Parameters: task (id).
SELECT traceback FROM attempt WHERE task_id = %(task)s ORDER BY release_no DESC LIMIT 1
