-- A page of a tenant's artifacts, newest first. Returns: artifacts.ArtifactView.
-- Needs: artifact_of_tenant, task_pkey; `stored` is said so that the partial indexes, which would want a sort, don't fit.
-- Locks: nothing. Parameters: tenant, before (id), most.
SELECT a.id, a.public_id, a.tenant_id, t.public_id, a.name, a.content_type, a.bytes, a.sha256, a.path, a.created_at, a.expires_at
FROM artifact a LEFT JOIN task t ON t.id = a.task_id
WHERE a.tenant_id = %(tenant)s AND a.id < %(before)s AND a.state NOT IN ('storing', 'removing') AND a.expires_at > clock_timestamp()
ORDER BY a.id DESC LIMIT %(most)s
