-- A page of a tenant's artifacts, newest first, of all or of one task. Returns: artifacts.ArtifactView.
-- Needs: artifact_of_tenant; with a task artifact_of_task, task_pkey. Locks: nothing.
-- Parameters: tenant, before (id), most, task (public id or null).
SELECT a.id, a.public_id, a.tenant_id, t.public_id, a.name, a.content_type, a.bytes, a.sha256, a.path, a.created_at, a.expires_at
FROM artifact a LEFT JOIN task t ON t.id = a.task_id
WHERE a.tenant_id = %(tenant)s AND a.id < %(before)s AND a.state = 'stored' AND a.expires_at > clock_timestamp()
  AND (%(task)s::uuid IS NULL OR t.public_id = %(task)s)
ORDER BY a.id DESC LIMIT %(most)s
