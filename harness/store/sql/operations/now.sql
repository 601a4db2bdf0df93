-- What runs where, at one glance, for people. Returns one JSON object: sessions [uuid, host, pid, pools, draining, leases, since],
-- oldest first; leases [pool, n, zombies]; leader [owner, whether it leads now] or null; retries [of the next `most` tasks that
-- come back by themselves those that failed before, seconds until the first of those].
-- Needs: task_not_before; nothing on worker_session, lease (few rows). Locks: nothing. Parameters: dead_after_s, most.
SELECT json_build_object(
    'sessions', (SELECT coalesce(json_agg(json_build_array(
                     s.uuid, s.host, s.pid, s.pools, s.draining, (SELECT count(*) FROM lease WHERE lease.session = s.uuid),
                     extract(epoch FROM s.started_at)) ORDER BY s.started_at, s.uuid), '[]')
                 FROM worker_session s
                 WHERE s.ended_at IS NULL AND s.beat_at > clock_timestamp() - make_interval(secs => %(dead_after_s)s)),
    'leases', (SELECT coalesce(json_agg(json_build_array(pool, n, zombies)), '[]') FROM (
        SELECT pool, count(*) AS n, count(zombie_since) AS zombies FROM lease GROUP BY pool) x),
    'leader', (SELECT json_build_array(owner, until > clock_timestamp()) FROM leader WHERE id = 1),
    'retries', (SELECT json_build_array(count(*), extract(epoch FROM min(not_before) - clock_timestamp())) FROM (
        SELECT state, not_before FROM task WHERE not_before IS NOT NULL ORDER BY not_before LIMIT %(most)s) x
        WHERE state = 'failed_retryable'))
