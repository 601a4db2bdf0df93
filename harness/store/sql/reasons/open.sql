-- The reasons that are noted as binding now.
-- Returns: pool, priority, tenant, run, signature, code, subject, facts. Needs: wait_reason_open. Locks: nothing.
SELECT pool, priority, tenant_id, run_id, signature, code, subject, facts FROM wait_reason WHERE until IS NULL
