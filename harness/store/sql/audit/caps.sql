-- What is in flight beyond a cap: slots of a pool (of sessions that live or ended lately, drained ones too), tenants, runs,
-- quotas, resources held by the task. Leases count as slots, members as tasks; a zombie counts as one of each.
-- Returns: rule, subject, id, tenant, facts (in_flight, cap, newest: the last lease of the scope).
-- Needs: nothing on lease and worker_session (few rows); lease_member_of_lease, tenant_pkey, run_pkey, quota is small.
-- Locks: nothing. Parameters: resources (jsonb: name -> capacity, those held by the task), late_s.
WITH held AS MATERIALIZED (
    SELECT l.id, l.pool, l.via, l.tenant_id, l.run_id, l.signature,
           greatest((SELECT count(*) FROM lease_member m WHERE m.lease_id = l.id), 1) AS members
    FROM lease l
),
slots AS MATERIALIZED (
    SELECT p.key AS pool, sum(p.value::integer) AS cap
    FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) p
    WHERE s.ended_at IS NULL OR s.ended_at > clock_timestamp() - make_interval(secs => %(late_s)s)
    GROUP BY p.key
),
needed AS MATERIALIZED (
    SELECT h.id, h.tenant_id, substring(part FROM '^(.*)=[0-9]+$') AS resource,
           substring(part FROM '=([0-9]+)$')::integer AS n
    FROM held h CROSS JOIN LATERAL string_to_table(h.signature, ',') AS part WHERE h.signature <> ''
),
used AS (
    SELECT 'pool_over_slots' AS rule, 'pool ' || x.pool AS subject, NULL::bigint AS id, NULL::integer AS tenant,
           count(*) AS in_flight, (SELECT cap FROM slots WHERE slots.pool = x.pool) AS cap, max(x.id) AS newest
    FROM (SELECT id, pool FROM held UNION ALL SELECT id, via FROM held WHERE via IS NOT NULL) x GROUP BY x.pool
    UNION ALL
    SELECT 'tenant_over_cap', 'tenant ' || h.tenant_id, h.tenant_id, h.tenant_id, sum(h.members),
           (SELECT cap FROM tenant WHERE tenant.id = h.tenant_id), max(h.id)
    FROM held h GROUP BY h.tenant_id
    UNION ALL
    SELECT 'run_over_cap', 'run ' || h.run_id, h.run_id, min(h.tenant_id), sum(h.members),
           (SELECT fanout_cap FROM run WHERE run.id = h.run_id), max(h.id)
    FROM held h WHERE h.run_id <> 0 GROUP BY h.run_id
    UNION ALL
    SELECT 'quota_over_cap', 'tenant ' || q.tenant_id || ', ' || q.scope || ' ' || q.name, q.tenant_id, q.tenant_id,
           x.in_flight, q.cap, x.newest
    FROM quota q CROSS JOIN LATERAL (
        SELECT sum(h.members) AS in_flight, max(h.id) AS newest FROM held h
        WHERE q.scope = 'pool' AND h.tenant_id = q.tenant_id AND h.pool = q.name
        UNION ALL
        SELECT sum(d.n), max(d.id) FROM needed d
        WHERE q.scope = 'resource' AND d.tenant_id = q.tenant_id AND d.resource = q.name) x
    UNION ALL
    SELECT 'resource_over_capacity', 'resource ' || r.key, NULL, NULL,
           (SELECT sum(d.n) FROM needed d WHERE d.resource = r.key), r.value::integer,
           (SELECT max(d.id) FROM needed d WHERE d.resource = r.key)
    FROM jsonb_each_text(%(resources)s::jsonb) r
)
SELECT rule, subject, id, tenant, jsonb_build_object('in_flight', in_flight, 'cap', cap, 'newest', newest)
FROM used WHERE in_flight > cap
