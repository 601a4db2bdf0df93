-- What tenants used of late, in the mean of the evaluations of the last `since_s`. A tenant that is gone is left out.
-- Returns: tenant id (0: all that weren't told by themselves), name, weight, slot-seconds a second; the most first.
-- Needs: evaluation_pkey, tenant_pkey. Locks: nothing. Parameters: since_s.
WITH lately AS MATERIALIZED (
    SELECT tenants FROM evaluation WHERE at > clock_timestamp() - make_interval(secs => %(since_s)s)
),
summed AS MATERIALIZED (
    SELECT one.key::integer AS id, sum(one.value::double precision) / (SELECT count(*) FROM lately) AS used
    FROM lately CROSS JOIN LATERAL jsonb_each_text(tenants) AS one(key, value) GROUP BY 1
)
SELECT s.id, coalesce(t.name, ''), coalesce(t.weight, 1.0)::double precision, s.used
FROM summed s LEFT JOIN tenant t ON t.id = s.id
WHERE s.id = 0 OR t.id IS NOT NULL ORDER BY s.used DESC, s.id
