-- The processes that may run each of these pools now, and whether anything of a pool runs elsewhere (quarantine).
-- Returns: pool, session, slots, elsewhere; oldest session first. Needs: nothing on worker_session and lease (few rows).
-- Locks: none. Parameters: pools, quiet_s.
SELECT p.pool, s.uuid::text, (s.pools ->> p.pool)::integer,
       EXISTS (SELECT FROM lease WHERE lease.pool = p.pool AND lease.via IS NOT NULL)
FROM unnest(%(pools)s::text[]) AS p(pool)
JOIN worker_session s ON s.pools ? p.pool
WHERE s.ended_at IS NULL AND NOT s.draining AND s.beat_at > clock_timestamp() - make_interval(secs => %(quiet_s)s)
ORDER BY p.pool, s.started_at, s.uuid
