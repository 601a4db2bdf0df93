-- Slots held, by what a pause can name. Asked only while a scope comes back from a pause.
-- Returns: pool, priority, tenant, run, leases. Needs: nothing on lease (few rows).
SELECT pool, priority, tenant_id, run_id, count(*)::integer FROM lease GROUP BY pool, priority, tenant_id, run_id
