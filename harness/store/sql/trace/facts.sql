-- What stands beside a trace: tenants with their quotas, runs, the slots of live workers, estimates; as one JSON object.
-- Needs: tenant_pkey, run_pkey. Locks: nothing. Parameters: tenants, runs (arrays of ids), dead_after_s.
SELECT json_build_object(
    'tenants', coalesce((SELECT json_agg(json_build_array(id, cap, weight, backlog_quota, top_priority, (
        SELECT coalesce(json_agg(json_build_array(scope, name, cap)), '[]') FROM quota WHERE tenant_id = tenant.id))
        ORDER BY id) FROM tenant WHERE id = ANY(%(tenants)s::integer[])), '[]'),
    'runs', coalesce((SELECT json_agg(json_build_array(id, tenant_id, fanout_cap) ORDER BY id) FROM run
            WHERE id = ANY(%(runs)s::bigint[])), '[]'),
    'slots', coalesce((SELECT json_object_agg(key, n) FROM (
        SELECT key, sum(value::integer) AS n FROM worker_session s CROSS JOIN LATERAL jsonb_each_text(s.pools)
        WHERE s.ended_at IS NULL AND NOT s.draining AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)
        GROUP BY key) p), '{}'),
    'estimates', coalesce((SELECT json_object_agg(kind, mean_s) FROM estimate), '{}'))
