-- What holds the lines of a run's ready tasks now, as the leading dispatcher notes it. Returns: code, subject, facts, since.
-- Needs: wait_reason_open. Locks: nothing. Parameters: tenant, run (id), most.
SELECT code, subject, facts, since FROM wait_reason
WHERE until IS NULL AND tenant_id = %(tenant)s AND run_id = %(run)s LIMIT %(most)s
