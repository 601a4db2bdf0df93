-- Let one transaction at a time decide about a tenant's artifacts: the quota, the content, and whether the tenant is there.
-- Not a lock on the tenant's row, which workers never touch. Returns: nothing of use. Locks: advisory, until commit.
-- Parameters: tenant.
SELECT pg_advisory_xact_lock(hashtext('harness_artifacts'), %(tenant)s)
