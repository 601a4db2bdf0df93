-- The newest dead letters of all tenants before one, with what their reason is made of (of other kinds: not).
-- Returns: id, dead_at, tenant id, kind, class, the beginning of the message; newest first.
-- Needs: task_dead_of_all, task_body_pkey. Locks: nothing. Parameters: tenant (null), before (time), before_id,
-- kind (null: any), chars, scan.
SELECT t.id, t.dead_at, t.tenant_id, t.kind, coalesce(b.error ->> 'class', 'expired'),
       left(coalesce(b.error ->> 'message', 'expired before it could start'), %(chars)s)
FROM (
    SELECT id, dead_at, tenant_id, kind FROM task
    WHERE dead_at IS NOT NULL AND (dead_at, id) < (%(before)s, %(before_id)s) AND %(tenant)s::integer IS NULL
    ORDER BY dead_at DESC, id DESC LIMIT %(scan)s
) t
LEFT JOIN task_body b ON b.task_id = t.id AND (%(kind)s::text IS NULL OR t.kind = %(kind)s)
ORDER BY t.dead_at DESC, t.id DESC
