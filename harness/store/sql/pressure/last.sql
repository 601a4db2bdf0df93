-- The level as it stands. Returns: level, what the machine knows, since, seen_at, and now (epoch seconds); no row: nobody
-- has evaluated yet. Needs: level_pkey. Locks: none (who writes holds the lock of `observe`). Parameters: none.
SELECT level, state, extract(epoch FROM since)::double precision, extract(epoch FROM seen_at)::double precision,
       extract(epoch FROM clock_timestamp())::double precision
FROM level WHERE id = 1
