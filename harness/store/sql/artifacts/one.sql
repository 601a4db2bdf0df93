-- One artifact that its owner may see. Returns: artifacts.ArtifactView. Needs: the unique index on public_id, task_pkey.
-- Locks: nothing. Parameters: tenant, artifact.
SELECT a.id, a.public_id, a.tenant_id, t.public_id, a.name, a.content_type, a.bytes, a.sha256, a.path, a.created_at, a.expires_at
FROM artifact a LEFT JOIN task t ON t.id = a.task_id
WHERE a.public_id = %(artifact)s AND a.tenant_id = %(tenant)s AND a.state = 'stored' AND a.expires_at > clock_timestamp()
