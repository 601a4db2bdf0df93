-- What a tenant's artifacts hold, and may hold. Expired ones don't count: they go by themselves.
-- Returns: quota bytes, bytes held, how many are visible. No row: there is no such tenant.
-- Needs: tenant_pkey, artifact_of_tenant (index only). Locks: nothing. Parameters: tenant.
SELECT tenant.artifact_quota_bytes, held.bytes, held.n
FROM tenant CROSS JOIN LATERAL (
    SELECT coalesce(sum(bytes), 0)::bigint AS bytes, count(*) FILTER (WHERE state = 'stored') AS n
    FROM artifact a WHERE a.tenant_id = %(tenant)s AND (a.state <> 'stored' OR a.expires_at > clock_timestamp())
) held
WHERE tenant.id = %(tenant)s
