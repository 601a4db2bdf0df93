-- Keep what was seen of resources, and every change of a limit. A proven ceiling outlives those who don't know of one;
-- what was seen earlier than what is kept changes nothing.
-- Returns: how many states and changes were written. Needs: resource_state_pkey. Locks: the rows of the resources, in the
-- order given. Parameters: states, changes (jsonb arrays; states sorted by resource; moments in epoch seconds).
WITH s AS (
    INSERT INTO resource_state (resource, limit_now, proven, mode, breaker, breaker_until, blocked_until, in_flight, waiting,
                                seen_at)
    SELECT resource, limit_now, proven, mode, breaker, to_timestamp(breaker_until_s), to_timestamp(blocked_until_s),
           in_flight, waiting, coalesce(to_timestamp(seen_s), clock_timestamp())
    FROM jsonb_to_recordset(%(states)s::jsonb) AS x(
        resource text, limit_now integer, proven integer, mode text, breaker text, breaker_until_s double precision,
        blocked_until_s double precision, in_flight integer, waiting integer, seen_s double precision)
    ON CONFLICT (resource) DO UPDATE SET
        limit_now = excluded.limit_now, proven = coalesce(excluded.proven, resource_state.proven), mode = excluded.mode,
        breaker = excluded.breaker, breaker_until = excluded.breaker_until, blocked_until = excluded.blocked_until,
        in_flight = excluded.in_flight, waiting = excluded.waiting, seen_at = excluded.seen_at
    WHERE resource_state.seen_at <= excluded.seen_at
    RETURNING 1
),
c AS (
    INSERT INTO limit_change (resource, at, old, new, reason, mode)
    SELECT resource, coalesce(to_timestamp(at_s), clock_timestamp()), old, new, reason, mode
    FROM jsonb_to_recordset(%(changes)s::jsonb) AS x(
        resource text, at_s double precision, old integer, new integer, reason text, mode text)
    RETURNING 1
)
SELECT (SELECT count(*)::integer FROM s), (SELECT count(*)::integer FROM c)
