-- The first ready tasks of flows, oldest first; the flows in the order given, one row of nulls for each that has none.
-- Returns: number of the flow in the list (from 1), task id, kind, single, lost_starts, epoch s since when it may run, whether
-- a cheaper form of it will do, place (the row's ctid, for the release).
-- Needs: task_head. Locks: nothing. Cost: flows asked for + heads, not the backlog.
-- Parameters: pool; flows (jsonb array: priority, tenant, run, signature, how many heads of each); lost_below
-- (heads that have lost as many workers are passed over: they wait for a slot of quarantine).
SELECT f.n, h.id, h.kind, h.single, h.lost_starts, h.ready_s, h.degrade, h.place
FROM (
    SELECT n, (x ->> 0)::smallint AS priority, (x ->> 1)::integer AS tenant, (x ->> 2)::bigint AS run, x ->> 3 AS signature,
           (x ->> 4)::integer AS heads
    FROM jsonb_array_elements(%(flows)s::jsonb) WITH ORDINALITY AS a(x, n)
) f
LEFT JOIN LATERAL (
    -- Compared and ordered as a row, so that only task_head fits: task_of_tenant also gives heads by id, and would walk
    -- through all that a tenant has ended.
    SELECT id, kind, single, lost_starts, degrade, ctid AS place,
           date_part('epoch', coalesce(ready_at, created_at)) AS ready_s
    FROM task
    WHERE ready AND lost_starts < %(lost_below)s
      AND (pool, priority, tenant_id, run_id, signature) >= (%(pool)s::text, f.priority, f.tenant, f.run, f.signature)
      AND (pool, priority, tenant_id, run_id, signature) <= (%(pool)s::text, f.priority, f.tenant, f.run, f.signature)
    ORDER BY pool, priority, tenant_id, run_id, signature, id LIMIT f.heads
) h ON true
ORDER BY f.n, h.id
