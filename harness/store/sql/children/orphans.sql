-- Children that live on though their parent has ended, and weren't asked to stop yet. Returns: task id.
-- Needs: task_of_parent, which has live ones at its end (asked for by IS NULL, all live tasks would do, too).
-- Locks: nothing. Parameters: parent, limit.
SELECT id FROM task WHERE parent_id = %(parent)s AND (finished_at IS NULL)::integer = 1 AND want IS DISTINCT FROM 'cancel'
ORDER BY finished_at DESC, id DESC LIMIT %(limit)s
