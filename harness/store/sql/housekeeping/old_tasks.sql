-- The next tasks by id. Returns: id, whether it ended before the time, whether it was born after it.
-- Needs: task_pkey. Locks: nothing. Parameters: before, after (id), limit.
SELECT id, coalesce(finished_at < %(before)s, false), created_at >= %(before)s
FROM task WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
