-- What is in flight: leases counted as slots, members counted as tasks; zombies count until they end.
-- Returns: pool, via, tenant, run, signature, leases, members, tenant cap, run cap.
-- Needs: nothing on lease (few rows); lease_member_of_lease, tenant_pkey, run_pkey.
SELECT l.pool, l.via, l.tenant_id, l.run_id, l.signature, count(*)::integer, sum(greatest(m.n, 1))::integer,
       min(tenant.cap), min(run.fanout_cap)
FROM lease l
CROSS JOIN LATERAL (SELECT count(*) AS n FROM lease_member WHERE lease_id = l.id) m
JOIN tenant ON tenant.id = l.tenant_id
LEFT JOIN run ON run.id = l.run_id
GROUP BY l.pool, l.via, l.tenant_id, l.run_id, l.signature
