-- Whether another upload of the same content is between its reservation and its publication.
-- Returns: true. Needs: artifact_unsettled (few rows). Locks: nothing. Parameters: tenant, sha256.
SELECT true FROM artifact
WHERE state <> 'stored' AND state = 'storing' AND tenant_id = %(tenant)s AND sha256 = %(sha256)s LIMIT 1
