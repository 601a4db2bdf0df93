-- Take an idempotency key for a submission about to be made, if it is free or its time is over.
-- Of clients that race with one key, all but one wait here until that one commits (then: no row) or is refused.
-- Returns: true if taken. Needs: idempotency_once. Locks: the key's row.
-- Parameters: tenant, route, key, body_hash, fields, made, keep_s.
INSERT INTO idempotency (tenant_id, route, key, body_hash, fields, made, expires_at)
VALUES (%(tenant)s, %(route)s, %(key)s, %(body_hash)s, %(fields)s::jsonb, %(made)s,
        clock_timestamp() + make_interval(secs => %(keep_s)s))
ON CONFLICT (tenant_id, route, key) DO UPDATE
SET body_hash = excluded.body_hash, fields = excluded.fields, made = excluded.made, expires_at = excluded.expires_at
WHERE idempotency.expires_at <= clock_timestamp()
RETURNING true
