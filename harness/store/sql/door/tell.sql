-- Add what a door refused or deferred. Returns: nothing. Needs: no index. Locks: new rows.
-- Parameters: rows (jsonb array: at (epoch s), tenant, pool, priority, signature, code, reason, tasks, once).
INSERT INTO door_answer (at, tenant_id, pool, priority, signature, code, reason, tasks, once)
SELECT to_timestamp(x.at), x.tenant, x.pool, x.priority, x.signature, x.code, x.reason, x.tasks, x.once
FROM jsonb_to_recordset(%(rows)s::jsonb) AS x(
    at double precision, tenant integer, pool text, priority smallint, signature text, code text, reason text,
    tasks integer, once integer)
