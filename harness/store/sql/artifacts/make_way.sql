-- An expired artifact of the same content gives up its place; the sweep removes its bytes.
-- Needs: artifact_once. Locks: its row. Parameters: tenant, sha256.
UPDATE artifact SET state = 'removing'
WHERE tenant_id = %(tenant)s AND sha256 = %(sha256)s AND state = 'stored' AND expires_at <= clock_timestamp()
