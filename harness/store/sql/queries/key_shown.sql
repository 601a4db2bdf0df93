-- The API key of a prefix, with its tenant. Returns: hash, scopes, whether revoked, tenant id.
-- Needs: api_key's unique index on prefix. Role web sees it only when harness.key_prefix says the same prefix.
-- Parameters: prefix.
SELECT hash, scopes, revoked_at IS NOT NULL, tenant_id FROM api_key WHERE prefix = %(prefix)s
