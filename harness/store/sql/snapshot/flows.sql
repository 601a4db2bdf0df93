-- The next flows of a pool in order, each with its first heads; what is blocked is excluded before LIMIT.
-- Returns: flow id, priority, tenant, run, signature, rank, tenant cap, run cap, and per head (or once, with nulls, for a
-- flow that is empty): task id, kind, single, lost_starts.
-- Needs: flow_in_order, task_head, tenant_pkey, run_pkey. Locks: nothing. Cost: flows looked at + heads, not the backlog.
-- Parameters: pool; after (priority, rank, id of the last flow seen); priorities (not paused); tenants, runs (blocked);
-- signatures (blocked); blocked_pairs (tenant:signature); flows, heads (of each flow), rows (limits); lost_below (heads
-- that have lost as many workers are passed over: they wait for a slot of quarantine).
SELECT f.id, f.priority, f.tenant_id, f.run_id, f.signature, f.rank, tenant.cap, run.fanout_cap,
       h.id, h.kind, h.single, h.lost_starts
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
    SELECT id, kind, single, lost_starts FROM task
    WHERE ready AND pool = f.pool AND priority = f.priority AND tenant_id = f.tenant_id AND run_id = f.run_id
      AND signature = f.signature AND lost_starts < %(lost_below)s
    ORDER BY id LIMIT %(heads)s
) h ON true
ORDER BY f.priority, f.rank, f.id, h.id LIMIT %(rows)s
