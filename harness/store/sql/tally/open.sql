-- The time, and since when the oldest other transaction is open: what it has inserted may still be committed, and what isn't
-- there after it never will be. Returns: now, since (epoch seconds). Needs: nothing. Parameters: none.
SELECT n.s, n.s - coalesce((SELECT max(age_s) FROM harness_transactions()), 0)
FROM (SELECT extract(epoch FROM clock_timestamp())::double precision AS s) n
