-- That nobody keeps how resources stand: none of them was seen lately, or never since the oldest live session began; or that
-- nobody evaluates the pressure, which was once evaluated.
-- Returns: rule, subject, id, tenant, facts (since: epoch s). Needs: nothing on resource_state, level and worker_session (few rows).
-- Locks: nothing. Parameters: resources (names, held by the call), late_s, dead_after_s.
SELECT 'observe_late', 'observe', NULL::bigint, NULL::integer, jsonb_build_object('since', round(extract(epoch FROM at)))
FROM (
    SELECT coalesce(
        (SELECT max(seen_at) FROM resource_state WHERE resource = ANY(%(resources)s::text[])),
        (SELECT min(started_at) FROM worker_session
         WHERE ended_at IS NULL AND beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s))
    ) AS at
) x
WHERE cardinality(%(resources)s::text[]) > 0 AND at < clock_timestamp() - make_interval(secs => %(late_s)s)
UNION ALL
SELECT 'level_late', 'level', NULL, NULL,
       jsonb_build_object('since', round(extract(epoch FROM seen_at)), 'level', level)
FROM level WHERE seen_at < clock_timestamp() - make_interval(secs => %(late_s)s)
