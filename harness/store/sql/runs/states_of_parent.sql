-- How a task's children stand, in order of birth: a letter each (store.runs), no more than `most`.
-- Returns: the letters. Needs: task_of_parent, which isn't in that order: asked for it with a limit, a walk over all tasks
-- would do, too. Locks: nothing. Parameters: parent (id), most.
SELECT coalesce(string_agg(CASE WHEN state = 'failed_retryable' THEN 't' WHEN holds = '{children}' THEN 'k' ELSE left(state, 1) END, '' ORDER BY id), '')
FROM (SELECT id, state, holds FROM task WHERE parent_id = %(parent)s LIMIT %(most)s) AS children
