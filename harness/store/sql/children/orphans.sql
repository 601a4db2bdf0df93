-- Children that live on though their parent has ended, and weren't asked to stop yet. Returns: task id.
-- Needs: task_of_parent. Locks: nothing. Parameters: parent, limit.
SELECT id FROM task WHERE parent_id = %(parent)s AND finished_at IS NULL AND want IS DISTINCT FROM 'cancel'
ORDER BY finished_at, id LIMIT %(limit)s
