-- The next tasks by id. Returns: id, whether it ended before its time (dead letters have one of their own), whether it
-- was born after the time of the others.
-- Needs: task_pkey. Locks: nothing. Parameters: before, dead_before, after (id), limit.
SELECT id, coalesce(finished_at < CASE WHEN dead_at IS NULL THEN %(before)s ELSE %(dead_before)s END, false), created_at >= %(before)s
FROM task WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
