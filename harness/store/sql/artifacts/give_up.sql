-- Hide an artifact for good, by its owner (a visible one) or by id (whatever it is). Its bytes go next, then its row.
-- Returns: id, path. Needs: the unique index on public_id, or artifact_pkey. Locks: its row.
-- Parameters: tenant, artifact (public id).
UPDATE artifact SET state = 'removing'
WHERE public_id = %(artifact)s AND tenant_id = %(tenant)s AND state <> 'removing'
  AND (state = 'storing' OR expires_at > clock_timestamp())
RETURNING id, path
