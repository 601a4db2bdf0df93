-- Keep what pools should have, and each change of it; pools that are no longer configured go.
-- Returns: how many changes were written. Needs: advice_pkey. Locks: advice rows, by pool (who writes has judged the pressure,
-- which one does at a time). Parameters: rows (jsonb: [pool, workers, desired, wanted, binds, reason, holds, state]).
WITH new AS MATERIALIZED (
    SELECT x ->> 'pool' AS pool, (x -> 'workers')::integer AS workers, (x -> 'desired')::integer AS desired,
           (x -> 'wanted')::integer AS wanted, x ->> 'binds' AS binds, x ->> 'reason' AS reason,
           (x -> 'holds')::boolean AS holds, x -> 'state' AS state
    FROM jsonb_array_elements(%(rows)s::jsonb) AS x
    ORDER BY 1
),
old AS MATERIALIZED (SELECT pool, desired FROM advice),
gone AS (DELETE FROM advice WHERE pool NOT IN (SELECT pool FROM new)),
kept AS (
    INSERT INTO advice (pool, workers, desired, wanted, binds, reason, holds, since, seen_at, state)
    SELECT pool, workers, desired, wanted, binds, reason, holds, clock_timestamp(), clock_timestamp(), state FROM new
    ON CONFLICT (pool) DO UPDATE SET
        workers = excluded.workers, desired = excluded.desired, wanted = excluded.wanted, binds = excluded.binds,
        reason = excluded.reason, holds = excluded.holds, seen_at = excluded.seen_at, state = excluded.state,
        since = CASE WHEN (advice.desired, advice.binds) = (excluded.desired, excluded.binds) THEN advice.since
                     ELSE excluded.since END
),
changed AS (
    INSERT INTO advice_change (at, pool, before, after, workers, binds, reason)
    SELECT clock_timestamp(), new.pool, old.desired, new.desired, new.workers, new.binds, new.reason
    FROM new JOIN old USING (pool) WHERE old.desired <> new.desired ORDER BY new.pool
    RETURNING 1
)
SELECT count(*)::integer FROM changed
