-- Hide what has expired, and what an upload left that never came to its end; then list all whose bytes must go.
-- Returns: id, path. Needs: artifact_expires, artifact_unsettled. Locks: the rows that it changes, skipping locked ones.
-- Parameters: abandoned_s (age of a reservation that nobody works on any more), tenant (null: any; else all of its own
-- go, whatever they are), limit.
WITH expired AS MATERIALIZED (
    SELECT id FROM artifact WHERE %(tenant)s::integer IS NULL AND state = 'stored' AND expires_at <= clock_timestamp()
    ORDER BY expires_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
abandoned AS MATERIALIZED (
    SELECT id FROM artifact WHERE %(tenant)s::integer IS NULL AND state <> 'stored' AND state = 'storing'
        AND created_at < clock_timestamp() - make_interval(secs => %(abandoned_s)s)
    ORDER BY created_at LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
of_tenant AS MATERIALIZED (
    SELECT id FROM artifact WHERE tenant_id = %(tenant)s::integer AND state <> 'removing'
    ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
),
old AS MATERIALIZED (
    SELECT id FROM expired UNION ALL SELECT id FROM abandoned UNION ALL SELECT id FROM of_tenant
),
hidden AS (
    UPDATE artifact SET state = 'removing' FROM old WHERE artifact.id = old.id RETURNING artifact.id, artifact.path
),
before AS (
    SELECT id, path FROM artifact
    WHERE state <> 'stored' AND state = 'removing' AND (%(tenant)s::integer IS NULL OR tenant_id = %(tenant)s::integer)
    ORDER BY created_at LIMIT %(limit)s
)
SELECT id, path FROM hidden UNION SELECT id, path FROM before LIMIT %(limit)s
