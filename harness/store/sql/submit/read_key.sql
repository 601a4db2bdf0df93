-- What an idempotency key made. Returns: made, body hash, fields, whether that is still there (retention may be shorter
-- than the key's lifetime). Needs: idempotency_once, the unique indexes of public_id. Locks: nothing.
-- Parameters: tenant, route, key.
SELECT made, body_hash, fields,
       EXISTS (SELECT FROM task WHERE public_id = made) OR EXISTS (SELECT FROM run WHERE public_id = made)
FROM idempotency
WHERE tenant_id = %(tenant)s AND route = %(route)s AND key = %(key)s
