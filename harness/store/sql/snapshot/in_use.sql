-- What a tick begins with, in one trip and one snapshot: the time; the slots of live, undrained sessions; what is in flight
-- (leases counted as slots, members as tasks; zombies count until they end); charges of what ended; flows that are new.
-- A lease and the charge of its end are never both seen, and never neither: what it overran is always counted once.
-- Returns: 'now', null, level of pressure (null: never evaluated), .., epoch s, 1 if there are notices of ends (else 0) | 'slots', pool, number |
-- 'flight', pool, leases, via, tenant, run, signature, members, priority, lane, null, overrun_s (times cost), cost, null, estimated ends (epoch s; only where resources are held) |
-- 'charge', pool, tasks, null, tenant, run, kind, null, priority, lane, id, slot_s, owed_s, cost_s |
-- 'flow', pool, tenant cap, null, tenant, run, signature, run cap, priority, null, id, weight, 1 if its work may be degraded (else 0).
-- Needs: nothing on worker_session, level, lease and notice (few rows); lease_member_of_lease (of bundles only), charge_pkey, flow_unknown,
-- tenant_pkey, run_pkey. Parameters: dead_after_s, zombie_s (most that a zombie overruns); charged (charges up to this id are left out), charges, flows (most).
WITH held AS MATERIALIZED (
    SELECT pool, via, tenant_id, run_id, signature, priority, lane, cost,
           CASE WHEN n = 1 THEN 1
                ELSE greatest((SELECT count(*) FROM lease_member WHERE lease_id = lease.id), 1) END AS members,
           date_part('epoch', released_at) + n * est_s AS ends_s,
           -- What a zombie's tasks took is charged; since then it only holds the slot. No longer than anything may run: a
           -- step of this server's clock is no service. (date_part: extract gives a numeric, which costs a third more.)
           greatest(0, least(date_part('epoch', statement_timestamp()) - date_part('epoch', coalesce(zombie_since, claimed_at)),
                             CASE WHEN zombie_since IS NULL THEN n * timeout_s ELSE %(zombie_s)s::double precision END)
                       - CASE WHEN zombie_since IS NULL THEN n * est_s ELSE 0 END) * cost AS overrun_s
    FROM lease
)
SELECT 'now' AS what, NULL::text AS pool, (SELECT level::integer FROM level WHERE id = 1) AS n, NULL::text AS via,
       NULL::integer AS tenant, NULL::bigint AS run, NULL::text AS signature, NULL::integer AS members, NULL::smallint AS priority,
       NULL::smallint AS lane, NULL::bigint AS id, date_part('epoch', statement_timestamp()) AS x,
       (SELECT count(*) FROM (SELECT FROM notice WHERE NOT down LIMIT 1) n)::double precision AS y, NULL::double precision AS z, NULL::double precision[] AS ends
UNION ALL
SELECT 'slots', pool.key, sum(pool.value::integer)::integer, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL
FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) AS pool(key, value)
WHERE s.ended_at IS NULL AND NOT s.draining AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
GROUP BY pool.key
UNION ALL
SELECT 'flight', pool, count(*)::integer, via, tenant_id, run_id, signature, sum(members)::integer, priority, lane, NULL,
       sum(overrun_s), sum(cost), NULL, array_agg(ends_s) FILTER (WHERE signature <> '')
FROM held GROUP BY pool, via, tenant_id, run_id, signature, priority, lane
UNION ALL
(SELECT 'charge', pool, n, NULL, tenant_id, run_id, kind, NULL, priority, lane, id, slot_s, owed_s, cost_s, NULL
 FROM charge WHERE id > %(charged)s ORDER BY id LIMIT %(charges)s)
UNION ALL
SELECT 'flow', f.pool, tenant.cap, NULL, f.tenant_id, f.run_id, f.signature, run.fanout_cap, f.priority, NULL, f.id,
       tenant.weight, tenant.degrade::integer, NULL, NULL
FROM (SELECT * FROM flow WHERE NOT known LIMIT %(flows)s) f
JOIN tenant ON tenant.id = f.tenant_id
LEFT JOIN run ON run.id = f.run_id
