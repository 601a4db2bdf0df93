-- What the door must know of a tenant. Returns: id, name, top priority, backlog quota. Needs: tenant_pkey.
-- Parameters: tenant.
SELECT id, name, top_priority, backlog_quota FROM tenant WHERE id = %(tenant)s
