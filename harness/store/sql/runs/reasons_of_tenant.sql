-- What holds the lines of a tenant's ready tasks now, as the leading dispatcher notes it. Returns: code, subject, facts,
-- since. Needs: wait_reason_open. Locks: nothing. Parameters: tenant, most.
SELECT code, subject, facts, since FROM wait_reason WHERE until IS NULL AND tenant_id = %(tenant)s LIMIT %(most)s
