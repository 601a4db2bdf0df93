-- Add what a door refused or deferred, under the 10 s that it fell into by this server's clock: a door's may be wrong.
-- Returns: nothing. Needs: no index. Locks: new rows.
-- Parameters: rows (jsonb array: age_s (how long ago), tenant, pool, priority, signature, code, reason, tasks, once).
INSERT INTO door_answer (at, tenant_id, pool, priority, signature, code, reason, tasks, once)
SELECT to_timestamp(floor((extract(epoch FROM clock_timestamp()) - x.age_s) / 10) * 10),
       x.tenant, x.pool, x.priority, x.signature, x.code, x.reason, x.tasks, x.once
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(
    age_s double precision, tenant integer, pool text, priority smallint, signature text, code text, reason text,
    tasks integer, once integer)
