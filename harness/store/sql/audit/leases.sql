-- The next leases by id: each must be waiting for a worker, held by one that lives, or taken back soon.
-- Claim may leave a lease without members for a moment (all of them expired), and the sweep takes a second or two: hence
-- `late_s`. Returns: rule, subject, id, tenant, facts of each fault, then a row without a rule: the last id looked at.
-- Needs: lease_pkey, worker_session_pkey, lease_member_of_lease. Locks: nothing.
-- Parameters: after, until (ids), limit, late_s, zombie_s.
WITH looked AS MATERIALIZED (
    SELECT id, tenant_id, pool, session, released_at, claimed_at, zombie_since
    FROM lease WHERE id > %(after)s AND id <= %(until)s ORDER BY id LIMIT %(limit)s
),
judged AS MATERIALIZED (
    SELECT l.*, s.uuid IS NOT NULL AS known, CASE
        WHEN l.claimed_at IS NOT NULL AND (s.uuid IS NULL OR coalesce(
             s.ended_at < clock_timestamp() - make_interval(secs => %(late_s)s), false))
            THEN 'lease_without_session'
        WHEN l.zombie_since IS NULL AND coalesce(l.claimed_at < clock_timestamp() - make_interval(secs => %(late_s)s), true)
             AND (SELECT m.task_id FROM lease_member m WHERE m.lease_id = l.id LIMIT 1) IS NULL
            THEN 'lease_without_member'
        WHEN l.claimed_at IS NULL AND l.released_at < clock_timestamp() - make_interval(secs => %(late_s)s)
            THEN 'release_not_taken_back'
        WHEN l.zombie_since < clock_timestamp() - make_interval(secs => %(zombie_s)s) THEN 'zombie_for_long'
        END AS rule
    FROM looked l
    LEFT JOIN LATERAL (SELECT uuid, ended_at FROM worker_session WHERE uuid = l.session LIMIT 1) s ON true
)
(SELECT rule, 'lease ' || id, id, tenant_id,
        jsonb_build_object('pool', pool, 'session', session, 'session_known', known, 'claimed', claimed_at IS NOT NULL,
                           'released_s_ago', round(extract(epoch FROM clock_timestamp() - released_at)))
 FROM judged WHERE rule IS NOT NULL ORDER BY id)
UNION ALL
SELECT NULL, NULL, max(id), NULL, NULL FROM looked
