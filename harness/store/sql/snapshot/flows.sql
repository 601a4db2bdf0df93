-- The next flows of a pool in order, each with its first heads; what is blocked is excluded before LIMIT.
-- Returns: flow id, priority, tenant, run, signature, rank, tenant cap, run cap, and per head (or once, with nulls, for a
-- flow that is empty): task id, kind, single, lost_starts, place (the row's ctid, for the release).
-- Needs: flow_in_order, task_head, tenant_pkey, run_pkey. Locks: nothing. Cost: flows looked at + heads, not the backlog.
-- Parameters: pool; after (priority, rank, id of the last flow seen); priorities (not paused); tenants, runs (blocked);
-- signatures (blocked); blocked_pairs (tenant:signature); flows, heads (of each flow), rows (limits); lost_below (heads
-- that have lost as many workers are passed over: they wait for a slot of quarantine).
SELECT f.id, f.priority, f.tenant_id, f.run_id, f.signature, f.rank, tenant.cap, run.fanout_cap,
       h.id, h.kind, h.single, h.lost_starts, h.place
FROM (
    SELECT * FROM flow
    WHERE pool = %(pool)s AND (priority, rank) >= (%(after_priority)s, %(after_rank)s)
      AND (priority, rank, id) > (%(after_priority)s, %(after_rank)s, %(after_id)s)
      AND priority = ANY(%(priorities)s::smallint[])
      AND NOT tenant_id = ANY(%(tenants)s::integer[])
      AND NOT run_id = ANY(%(runs)s::bigint[])
      AND NOT signature = ANY(%(signatures)s::text[])
      AND NOT (tenant_id || ':' || signature) = ANY(%(blocked_pairs)s::text[])
    ORDER BY priority, rank, id LIMIT %(flows)s
) f
JOIN tenant ON tenant.id = f.tenant_id
LEFT JOIN run ON run.id = f.run_id
LEFT JOIN LATERAL (
    -- Compared and ordered as a row, so that only task_head fits: task_of_tenant also gives heads by id, and would walk
    -- through all that a tenant has ended.
    SELECT id, kind, single, lost_starts, ctid AS place FROM task
    WHERE ready AND lost_starts < %(lost_below)s
      AND (pool, priority, tenant_id, run_id, signature) >= (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
      AND (pool, priority, tenant_id, run_id, signature) <= (f.pool, f.priority, f.tenant_id, f.run_id, f.signature)
    ORDER BY pool, priority, tenant_id, run_id, signature, id LIMIT %(heads)s
) h ON true
ORDER BY f.priority, f.rank, f.id, h.id LIMIT %(rows)s
