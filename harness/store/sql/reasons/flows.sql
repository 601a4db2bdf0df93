-- A window of the flows, by id, with the caps that they stand under.
-- Returns: id, pool, priority, tenant, run, signature, tenant cap, run cap. Needs: flow_pkey, tenant_pkey, run_pkey.
-- Locks: nothing. Parameters: after (id of the last one seen), most.
SELECT f.id, f.pool, f.priority, f.tenant_id, f.run_id, f.signature, tenant.cap, run.fanout_cap
FROM (SELECT * FROM flow WHERE id > %(after)s ORDER BY id LIMIT %(most)s) f
JOIN tenant ON tenant.id = f.tenant_id
LEFT JOIN LATERAL (SELECT fanout_cap FROM run WHERE f.run_id <> 0 AND run.id = f.run_id LIMIT 1) run ON true
