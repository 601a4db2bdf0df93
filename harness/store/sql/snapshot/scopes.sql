-- What rarely changes, in one look: pauses in force, those that ended a moment ago (with the seconds since), quotas,
-- estimates, and the tenants that aren't as a new one is; as one JSON object of arrays. Parameters: ramp_s, cap, weight
-- (what a new tenant has). Needs: nothing (small tables; tenant: 0.3 us a row); read at most once a second.
SELECT json_build_object(
    'pauses', coalesce((SELECT json_agg(json_build_array(scope, key, source, reason)) FROM pause
               WHERE resumed_at IS NULL AND (until IS NULL OR until > clock_timestamp())), '[]'),
    'ramps', coalesce((SELECT json_agg(json_build_array(scope, key, extract(epoch FROM clock_timestamp() - ended)))
             FROM (SELECT scope, key, least(resumed_at, until) AS ended FROM pause) p
             WHERE ended BETWEEN clock_timestamp() - make_interval(secs => %(ramp_s)s) AND clock_timestamp()), '[]'),
    'quotas', coalesce((SELECT json_agg(json_build_array(tenant_id, scope, name, cap)) FROM quota), '[]'),
    'estimates', coalesce((SELECT json_agg(json_build_array(kind, mean_s)) FROM estimate), '[]'),
    'tenants', coalesce((SELECT json_agg(json_build_array(id, cap, weight, degrade)) FROM tenant
               WHERE cap <> %(cap)s OR weight <> %(weight)s OR NOT degrade), '[]'))
