-- What a tick begins with, in one trip: the slots of live, undrained sessions; what is in flight (leases counted as slots,
-- members as tasks; zombies count until they end); and which pools have a flow at all.
-- Returns: 'slots', pool, number | 'flight', pool, leases, via, tenant, run, signature, members, tenant cap, run cap |
-- 'flows', pool. Needs: nothing on worker_session and lease (few rows); lease_member_of_lease, tenant_pkey, run_pkey,
-- flow_in_order. Parameters: dead_after_s, pools.
SELECT 'slots' AS what, pool.key AS pool, sum(pool.value::integer)::integer AS n, NULL::text AS via, NULL::integer AS tenant,
       NULL::bigint AS run, NULL::text AS signature, NULL::integer AS members, NULL::integer AS tenant_cap,
       NULL::integer AS run_cap
FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) AS pool(key, value)
WHERE s.ended_at IS NULL AND NOT s.draining AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
GROUP BY pool.key
UNION ALL
SELECT 'flight', l.pool, count(*)::integer, l.via, l.tenant_id, l.run_id, l.signature, sum(greatest(m.n, 1))::integer,
       min(tenant.cap), min(run.fanout_cap)
FROM lease l
CROSS JOIN LATERAL (SELECT count(*) AS n FROM lease_member WHERE lease_id = l.id) m
JOIN tenant ON tenant.id = l.tenant_id
LEFT JOIN run ON run.id = l.run_id
GROUP BY l.pool, l.via, l.tenant_id, l.run_id, l.signature
UNION ALL
SELECT 'flows', p.name, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM unnest(%(pools)s::text[]) AS p(name) WHERE EXISTS (SELECT FROM flow WHERE flow.pool = p.name)
