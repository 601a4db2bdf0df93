-- What an idempotency key made. Returns: made, body hash, fields. Needs: idempotency_once. Locks: nothing.
-- Parameters: tenant, route, key.
SELECT made, body_hash, fields FROM idempotency
WHERE tenant_id = %(tenant)s AND route = %(route)s AND key = %(key)s
