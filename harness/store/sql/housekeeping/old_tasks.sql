-- The next tasks by id. Returns: id, whether it ended before its time (dead letters have one of their own), whether it
-- was born after the time of the others. A child stays as long as its parent is there: that may still read its result.
-- Needs: task_pkey. Locks: nothing. Parameters: before, dead_before, after (id), limit.
SELECT id, coalesce(finished_at < CASE WHEN dead_at IS NULL THEN %(before)s ELSE %(dead_before)s END, false)
           AND NOT EXISTS (SELECT FROM task p WHERE p.id = t.parent_id), created_at >= %(before)s
FROM task t WHERE id > %(after)s ORDER BY id LIMIT %(limit)s
