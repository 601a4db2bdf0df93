-- What rarely changes, in one look: pauses in force, quotas, overrides, estimates; as one JSON object of arrays.
-- Needs: nothing (small tables); read at most once a second.
SELECT json_build_object(
    'pauses', coalesce((SELECT json_agg(json_build_array(scope, key, source, reason)) FROM pause
               WHERE until IS NULL OR until > clock_timestamp()), '[]'),
    'quotas', coalesce((SELECT json_agg(json_build_array(tenant_id, scope, name, cap)) FROM quota), '[]'),
    'estimates', coalesce((SELECT json_agg(json_build_array(kind, mean_s)) FROM estimate), '[]'))
