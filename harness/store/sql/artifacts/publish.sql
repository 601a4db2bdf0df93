-- Show an artifact whose bytes are all there. Returns: artifacts.ArtifactView; no row: the sweep took it for a leftover.
-- Needs: artifact_pkey, task_pkey. Locks: its row. Parameters: id.
WITH a AS (
    UPDATE artifact SET state = 'stored' WHERE id = %(id)s AND state = 'storing' RETURNING *
)
SELECT a.id, a.public_id, a.tenant_id, t.public_id, a.name, a.content_type, a.bytes, a.sha256, a.path, a.created_at, a.expires_at FROM a LEFT JOIN task t ON t.id = a.task_id
