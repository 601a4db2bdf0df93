-- A tenant's artifact with this content, whose time is made the later one of both.
-- Returns: artifacts.ArtifactView. Needs: artifact_once, task_pkey. Locks: the artifact's row.
-- Parameters: tenant, sha256, keep_s.
WITH a AS (
    UPDATE artifact SET expires_at = greatest(expires_at, clock_timestamp() + make_interval(secs => %(keep_s)s))
    WHERE tenant_id = %(tenant)s AND sha256 = %(sha256)s AND state = 'stored' AND expires_at > clock_timestamp()
    RETURNING *
)
SELECT a.id, a.public_id, a.tenant_id, t.public_id, a.name, a.content_type, a.bytes, a.sha256, a.path, a.created_at, a.expires_at FROM a LEFT JOIN task t ON t.id = a.task_id
