-- Count a tenant's live tasks, but no further than `most`. Returns: count.
-- Needs: task_live (index only). Locks: nothing. Parameters: tenant, most.
SELECT count(*)::integer FROM (
    SELECT FROM task WHERE tenant_id = %(tenant)s AND finished_at IS NULL LIMIT %(most)s
) AS live
