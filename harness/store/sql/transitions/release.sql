-- Commit a plan: leases with their members, the fence (release_no) of each task; and with them what the plan moved in the
-- leader's memory: clocks and credits as they are, the charges that are in them (deleted), the flows that it now knows.
-- A task that is no longer ready, or whose row somebody has locked, is left out: one forgotten transaction must not keep
-- everybody waiting. So is one whose row has moved since the look: the next tick finds it at its new place. A lease
-- without members is not made, and neither is one that would pass a cap: tenants, runs, slots, resources and quotas are
-- counted again here, with leases that are left out. Nothing happens under another epoch.
-- Returns: token, lease id, members, null of each lease made | token, null, 0, the cap of each that would pass one.
-- Needs: no index on task: rows are found where the look saw them (their ctid), whatever the table's size; the id says
-- that it is still the same task. tenant_pkey, run_pkey, quota_once, lease_member_of_lease (of bundles only), clock_pkey,
-- class_credit_pkey, charge_pkey, flow_pkey; nothing on lease and worker_session (few rows).
-- Locks: leader (share), then tasks by id; the lease rows are new, and the others only a leader changes.
-- Parameters: epoch; leases (jsonb array of lease values, each with its token, its tasks and their places, in order);
-- capacities (jsonb: resource -> number); dead_after_s; clocks, credits (jsonb arrays); charges (ids); known (flow ids).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE
),
p AS MATERIALIZED (
    SELECT x.*, row_number() OVER () AS at, nextval('lease_id_seq') AS id
    FROM jsonb_to_recordset(%(leases)s::jsonb) AS x(
        token bigint, pool text, via text, tenant integer, run bigint, priority smallint, lane smallint, kind text,
        signature text, est_s double precision, cost double precision, timeout_s double precision, degraded text,
        tasks bigint[], places tid[])
    WHERE EXISTS (SELECT FROM fence)
),
slots AS MATERIALIZED (
    SELECT pool.key AS pool, sum(pool.value::integer) AS n
    FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools) AS pool(key, value)
    WHERE s.ended_at IS NULL AND NOT s.draining
      AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
    GROUP BY pool.key
),
held AS MATERIALIZED (
    SELECT pool, via, tenant_id AS tenant, run_id AS run, signature,
           CASE WHEN n = 1 THEN 1
                ELSE greatest((SELECT count(*) FROM lease_member WHERE lease_id = lease.id), 1) END AS members
    FROM lease
),
-- Sums by key, not windows over all that is held: those sort every lease four times for two that are to be.
of_tenants AS MATERIALIZED (
    SELECT tenant, sum(members) AS n FROM held WHERE tenant = ANY(ARRAY(SELECT tenant FROM p)) GROUP BY tenant
),
of_runs AS MATERIALIZED (
    SELECT run, sum(members) AS n FROM held WHERE run = ANY(ARRAY(SELECT run FROM p WHERE run <> 0)) GROUP BY run
),
of_pools AS MATERIALIZED (
    SELECT pool, count(*) AS n FROM held WHERE pool = ANY(ARRAY(SELECT pool FROM p)) GROUP BY pool
),
line AS MATERIALIZED (
    -- What is to be, with what is held: each sees the sums up to itself.
    SELECT id, pool, via, tenant, run,
           sum(cardinality(tasks)) OVER (PARTITION BY tenant ORDER BY at)
               + coalesce((SELECT n FROM of_tenants o WHERE o.tenant = p.tenant), 0) AS of_tenant,
           CASE WHEN run <> 0 THEN sum(cardinality(tasks)) OVER (PARTITION BY run ORDER BY at)
               + coalesce((SELECT n FROM of_runs o WHERE o.run = p.run), 0) END AS of_run,
           count(*) OVER (PARTITION BY pool ORDER BY at)
               + coalesce((SELECT n FROM of_pools o WHERE o.pool = p.pool), 0) AS of_pool,
           CASE WHEN via IS NOT NULL THEN count(*) OVER (PARTITION BY via ORDER BY at)
               + (SELECT count(*) FROM held WHERE held.via = p.via) END AS of_via
    FROM p
),
short AS MATERIALIZED (
    SELECT id, min(resource) AS resource
    FROM (SELECT x.id, split_part(part, '=', 1) AS resource,
                 sum(split_part(part, '=', 2)::integer) OVER (PARTITION BY split_part(part, '=', 1) ORDER BY x.at) AS used
          FROM (SELECT NULL::bigint AS id, 0 AS at, signature FROM held WHERE signature <> ''
                UNION ALL
                SELECT id, at, signature FROM p WHERE signature <> '') x
          CROSS JOIN LATERAL string_to_table(x.signature, ',') AS part
          WHERE EXISTS (SELECT FROM p WHERE signature <> '')) u
    WHERE id IS NOT NULL AND used > coalesce((%(capacities)s::jsonb ->> resource)::integer, 0)
    GROUP BY id
),
quotas AS MATERIALIZED (
    SELECT tenant_id AS tenant, scope, name, cap FROM quota WHERE tenant_id = ANY(ARRAY(SELECT tenant FROM p))
),
beyond AS MATERIALIZED (
    SELECT id, min(name) AS name
    FROM (SELECT x.id, q.name, q.cap, sum(x.n) OVER (PARTITION BY q.tenant, q.scope, q.name ORDER BY x.at) AS used
          FROM quotas q CROSS JOIN LATERAL (
              SELECT h.id, h.at, CASE WHEN q.scope = 'pool' THEN h.members ELSE (
                         SELECT split_part(part, '=', 2)::integer FROM string_to_table(h.signature, ',') AS part
                         WHERE split_part(part, '=', 1) = q.name) END AS n
              FROM (SELECT NULL::bigint AS id, 0 AS at, tenant, pool, signature, members FROM held
                    UNION ALL
                    SELECT id, at, tenant, pool, signature, cardinality(tasks) FROM p) h
              WHERE h.tenant = q.tenant AND (q.scope <> 'pool' OR h.pool = q.name)) x
          WHERE x.n IS NOT NULL) u
    WHERE id IS NOT NULL AND used > cap
    GROUP BY id
),
checked AS MATERIALIZED (
    SELECT x.id,
           CASE WHEN of_tenant > coalesce((SELECT cap FROM tenant WHERE tenant.id = x.tenant), 0) THEN 'tenant_cap'
                WHEN x.run <> 0 AND of_run > (SELECT fanout_cap FROM run WHERE run.id = x.run) THEN 'run_cap'
                WHEN of_pool > coalesce((SELECT n FROM slots WHERE slots.pool = x.pool), 0) THEN 'slots'
                WHEN x.via IS NOT NULL AND of_via > coalesce((SELECT n FROM slots WHERE slots.pool = x.via), 0)
                THEN 'quarantine'
                ELSE coalesce('resource:' || (SELECT resource FROM short WHERE short.id = x.id),
                              'quota:' || (SELECT name FROM beyond WHERE beyond.id = x.id)) END AS passes
    FROM line x
),
want AS MATERIALIZED (
    SELECT p.id AS lease, m.task, m.place, m.ordinal
    FROM p CROSS JOIN LATERAL unnest(p.tasks, p.places) WITH ORDINALITY AS m(task, place, ordinal)
    WHERE (SELECT passes FROM checked WHERE checked.id = p.id) IS NULL
),
locked AS MATERIALIZED (
    SELECT t.place, w.lease, w.ordinal
    FROM (SELECT * FROM want ORDER BY task) w CROSS JOIN LATERAL (
        -- not `ready` and not `id = w.task` alone: those would invite an index
        SELECT ctid AS place FROM task WHERE ctid = w.place AND id + 0 = w.task AND ready::integer = 1
        FOR UPDATE SKIP LOCKED) t
),
u AS (
    UPDATE task SET ready = false, release_no = release_no + 1 FROM locked WHERE task.ctid = locked.place
    RETURNING task.id, task.tenant_id, task.release_no, locked.lease, locked.ordinal
),
-- What follows takes what was updated, not what was locked: of a row that moved after this statement began, a server that
-- doesn't check the place again locks the new version, which the update, by the statement's own snapshot, doesn't see.
m AS (
    INSERT INTO lease_member (task_id, tenant_id, lease_id, release_no, ordinal)
    SELECT id, tenant_id, lease, release_no, ordinal FROM u
),
l AS (
    INSERT INTO lease (id, token, pool, via, tenant_id, run_id, priority, lane, kind, signature, est_s, cost, timeout_s,
                       degraded, n, released_at)
    SELECT p.id, p.token, p.pool, p.via, p.tenant, p.run, p.priority, p.lane, p.kind, p.signature, p.est_s, p.cost,
           p.timeout_s, p.degraded, counted.n, clock_timestamp()
    FROM p JOIN (SELECT lease, count(*) AS n FROM u GROUP BY lease) counted ON counted.lease = p.id
    RETURNING id, token, n
),
clocks AS (
    INSERT INTO clock (pool, priority, tenant_id, run_id, v, g, at_s)
    SELECT pool, priority, tenant, run, v, g, at_s
    FROM jsonb_to_recordset(%(clocks)s::jsonb) AS x(
        pool text, priority smallint, tenant integer, run bigint, v double precision, g double precision,
        at_s double precision)
    WHERE EXISTS (SELECT FROM fence)
    ON CONFLICT (pool, priority, tenant_id, run_id) DO UPDATE SET v = excluded.v, g = excluded.g, at_s = excluded.at_s
),
credits AS (
    INSERT INTO class_credit (pool, lane, credit_s, est_s, mean_s, square_s, v, at_s)
    SELECT pool, lane, credit_s, est_s, mean_s, square_s, v, at_s
    FROM jsonb_to_recordset(%(credits)s::jsonb) AS x(
        pool text, lane smallint, credit_s double precision, est_s double precision, mean_s double precision,
        square_s double precision, v double precision, at_s double precision)
    WHERE EXISTS (SELECT FROM fence)
    ON CONFLICT (pool, lane) DO UPDATE SET credit_s = excluded.credit_s, est_s = excluded.est_s,
        mean_s = excluded.mean_s, square_s = excluded.square_s, v = excluded.v, at_s = excluded.at_s
),
charged AS (
    DELETE FROM charge WHERE id = ANY(%(charges)s::bigint[]) AND EXISTS (SELECT FROM fence)
),
k AS (
    UPDATE flow SET known = true WHERE id = ANY(%(known)s::bigint[]) AND EXISTS (SELECT FROM fence)
)
SELECT token, id, n, NULL AS passes FROM l
UNION ALL
SELECT p.token, NULL, 0, c.passes FROM checked c JOIN p ON p.id = c.id WHERE c.passes IS NOT NULL
