-- A task and those above it, itself first, then its parent, at most 30. Returns: public id, title or kind.
-- Needs: task's unique index on public_id, task_pkey, task_body_pkey. Parameters: task (public id).
WITH RECURSIVE up AS (
    SELECT id, parent_id, public_id, kind, 1 AS n FROM task WHERE public_id = %(task)s
    UNION ALL
    SELECT t.id, t.parent_id, t.public_id, t.kind, up.n + 1 FROM up JOIN task t ON t.id = up.parent_id WHERE up.n < 30
)
SELECT up.public_id, coalesce(nullif(b.title, ''), up.kind) FROM up LEFT JOIN task_body b ON b.task_id = up.id ORDER BY up.n
