-- What the database knows beside resources.toml: overrides in force, the last state of each resource, tenants' quotas on them.
-- Returns: one row: overrides ([resource, field, value, author, reason,
-- created, until]), states ([resource, proven, limit_now]), quotas ([name, tenant, cap]), each a jsonb array; moments
-- in epoch seconds. Needs: override_open, resource_state_pkey, quota_once. Locks: none.
SELECT (SELECT coalesce(jsonb_agg(jsonb_build_array(
            resource, field, value, author, reason, extract(epoch FROM created_at), extract(epoch FROM until))), '[]')
        FROM override WHERE ended_at IS NULL AND (until IS NULL OR until > clock_timestamp())),
       (SELECT coalesce(jsonb_agg(jsonb_build_array(resource, proven, limit_now)), '[]') FROM resource_state),
       (SELECT coalesce(jsonb_agg(jsonb_build_array(name, tenant_id, cap)), '[]') FROM quota WHERE scope = 'resource')
