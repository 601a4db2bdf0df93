-- Keep an evaluation, and the change that came of it, if one did (after <> before).
-- Returns: how many changes were written. Needs: level_pkey. Locks: the row. Parameters: before, after, state, readings
-- (jsonb), signals (jsonb: of the change), done (words).
WITH l AS (
    INSERT INTO level (id, level, since, seen_at, state, readings)
    VALUES (1, %(after)s, clock_timestamp(), clock_timestamp(), %(state)s::jsonb, %(readings)s::jsonb)
    ON CONFLICT (id) DO UPDATE SET
        level = excluded.level, seen_at = excluded.seen_at, state = excluded.state, readings = excluded.readings,
        since = CASE WHEN level.level = excluded.level THEN level.since ELSE excluded.since END
),
c AS (
    INSERT INTO level_change (at, before, after, signals, done)
    SELECT clock_timestamp(), %(before)s, %(after)s, %(signals)s::jsonb, %(done)s
    WHERE %(before)s::smallint <> %(after)s::smallint
    RETURNING 1
)
SELECT count(*)::integer FROM c
