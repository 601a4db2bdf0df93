-- Free an idempotency key whose task or run is gone; not one that somebody else has taken meanwhile.
-- Returns: nothing. Needs: idempotency_once. Locks: the key's row. Parameters: tenant, route, key, made.
DELETE FROM idempotency WHERE tenant_id = %(tenant)s AND route = %(route)s AND key = %(key)s AND made = %(made)s
