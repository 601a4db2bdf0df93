-- Put a generated snapshot (cases.Case, as JSON) into the tables. Returns: the moment that "ago" counts from (whole epoch
-- seconds, so that it is the same number in both). Parameters: the case.
WITH c AS MATERIALIZED (SELECT %s::jsonb AS c, floor(extract(epoch FROM clock_timestamp()))::double precision AS at_s),
tenants AS (INSERT INTO tenant (id, name, cap, weight, degrade) OVERRIDING SYSTEM VALUE
            SELECT key::integer, key, (value ->> 0)::integer, (value ->> 1)::double precision,
                   NOT (c -> 'whole') @> to_jsonb(key::integer)
            FROM c, jsonb_each(c -> 'tenants')),
runs AS (INSERT INTO run (id, tenant_id, size, fanout_cap) OVERRIDING SYSTEM VALUE
         SELECT key::bigint, (value ->> 0)::integer, 1, (value ->> 1)::integer FROM c, jsonb_each(c -> 'runs')),
quotas AS (INSERT INTO quota (tenant_id, scope, name, cap)
           SELECT (q ->> 0)::integer, q ->> 1, q ->> 2, (q ->> 3)::integer FROM c, jsonb_array_elements(c -> 'quotas') q),
pauses AS (INSERT INTO pause (scope, key, source, author, reason)
           SELECT DISTINCT p ->> 0, p ->> 1, 'operator', 'me', 'test' FROM c, jsonb_array_elements(c -> 'pauses') p),
ended AS (INSERT INTO pause (scope, key, source, author, reason, resumed_at)
          SELECT DISTINCT ON (p ->> 0, p ->> 1) p ->> 0, p ->> 1, 'operator', 'me', 'test',
                 clock_timestamp() - make_interval(secs => (p ->> 2)::double precision)
          FROM c, jsonb_array_elements(c -> 'ramps') p),
estimates AS (INSERT INTO estimate (kind, mean_s)
              SELECT key, value::text::double precision FROM c, jsonb_each(c -> 'estimates')),
budgets AS (INSERT INTO budget (tenant_id, day_usd, soft_ratio, author, spent_day_usd, counted_at)
            SELECT t::integer, 1, 0.8, 'me', 2, now() FROM c, jsonb_array_elements_text(c -> 'beyond') t),
sessions AS (INSERT INTO worker_session (uuid, host, pid, pools, kinds, connections, beat_at, draining)
             SELECT gen_random_uuid(), 'test', 1, jsonb_build_object(key, value), '{}'::text[], 1, clock_timestamp(), false
             FROM c, jsonb_each(c -> 'slots') WHERE value::text::integer > 0
             UNION ALL -- and some that don't count
             SELECT gen_random_uuid(), 'test', 1, c -> 'slots', '{}'::text[], 1, clock_timestamp() - d * interval '1 hour', d = 0
             FROM c, generate_series(0, 1) d),
flows AS (INSERT INTO flow (id, pool, priority, tenant_id, run_id, signature) OVERRIDING SYSTEM VALUE
          SELECT (f ->> 'id')::bigint, f ->> 'pool', (f ->> 'priority')::smallint, (f ->> 'tenant')::integer,
                 (f ->> 'run')::bigint, f ->> 'signature'
          FROM c, jsonb_array_elements(c -> 'flows') f),
tasks AS (INSERT INTO task (id, tenant_id, run_id, kind, version, pool, priority, signature, state, ready, single,
                            lost_starts, ready_at) OVERRIDING SYSTEM VALUE
          SELECT (h ->> 0)::bigint, (f ->> 'tenant')::integer, (f ->> 'run')::bigint, h ->> 1, 1, f ->> 'pool',
                 (f ->> 'priority')::smallint, f ->> 'signature', 'queued', true, (h ->> 2)::boolean, (h ->> 3)::integer,
                 to_timestamp(at_s - (h ->> 4)::double precision)
          FROM c, jsonb_array_elements(c -> 'flows') f, jsonb_array_elements(f -> 'heads') h
          UNION ALL
          SELECT u::bigint, (f ->> 'tenant')::integer, (f ->> 'run')::bigint, 'noop', 1, f ->> 'pool',
                 (f ->> 'priority')::smallint, f ->> 'signature', 'queued', false, false, 0, NULL
          FROM c, jsonb_array_elements(c -> 'flows') f, jsonb_array_elements_text(f -> 'unready') u),
clocks AS (INSERT INTO clock (pool, priority, tenant_id, run_id, v, g, at_s)
           SELECT k ->> 0, (k ->> 1)::smallint, (k ->> 2)::integer, (k ->> 3)::bigint, (k ->> 4)::double precision,
                  (k ->> 5)::double precision, at_s - (c ->> 'written_ago_s')::double precision
           FROM c, jsonb_array_elements(c -> 'clocks') k),
credits AS (INSERT INTO class_credit (pool, lane, credit_s, est_s, mean_s, square_s, v, at_s)
            SELECT k ->> 0, (k ->> 1)::smallint, (k ->> 2)::double precision, (k ->> 3)::double precision,
                   (k ->> 4)::double precision, (k ->> 5)::double precision, (k ->> 6)::double precision,
                   at_s - (c ->> 'written_ago_s')::double precision
            FROM c, jsonb_array_elements(c -> 'credits') k),
leases AS (INSERT INTO lease (id, token, pool, via, tenant_id, run_id, priority, lane, kind, signature, est_s, cost, n,
                              timeout_s, released_at, claimed_at, zombie_since) OVERRIDING SYSTEM VALUE
           SELECT (l ->> 'id')::bigint, 1, l ->> 'pool', l ->> 'via', (l ->> 'tenant')::integer, (l ->> 'run')::bigint,
                  (l ->> 'priority')::smallint, (l ->> 'lane')::smallint, 'noop', l ->> 'signature',
                  (l ->> 'est_s')::double precision, (l ->> 'cost')::double precision, n, 60, claimed, claimed,
                  CASE WHEN l -> 'members' = '[]' THEN claimed + make_interval(secs => (l ->> 'est_s')::double precision) END
           FROM c, jsonb_array_elements(c -> 'leases') l,
                LATERAL (SELECT greatest(jsonb_array_length(l -> 'members'), 1) AS n,
                                to_timestamp(at_s - (l ->> 'ago_s')::double precision) AS claimed) x),
members AS (INSERT INTO lease_member (task_id, tenant_id, lease_id, release_no, ordinal)
            SELECT m::bigint, (l ->> 'tenant')::integer, (l ->> 'id')::bigint, 1, 1
            FROM c, jsonb_array_elements(c -> 'leases') l, jsonb_array_elements_text(l -> 'members') m)
SELECT at_s FROM c
