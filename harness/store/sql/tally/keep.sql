-- Keep a round. Returns: nothing. Needs: tally_pkey. Locks: the row, which who counts has locked.
-- Parameters: at_s, took_s, mark, told, totals, stands (jsonb).
INSERT INTO tally (id, seen_at, took_s, mark, told, totals, stands)
VALUES (1, to_timestamp(%(at_s)s::double precision), %(took_s)s, %(mark)s::jsonb, %(told)s::jsonb, %(totals)s::jsonb,
        %(stands)s::jsonb)
ON CONFLICT (id) DO UPDATE SET
    seen_at = excluded.seen_at, took_s = excluded.took_s, mark = excluded.mark, told = excluded.told,
    totals = excluded.totals, stands = excluded.stands
