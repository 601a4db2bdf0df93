-- A part of other statements: how many flows of each class (pool, priority) are looked at. Whoever has few loses nothing to
-- whoever has many. Gives: classes (pool, priority, n flows, part). Needs: nothing on flow. Parameters: flows (most).
classes AS MATERIALIZED (
    -- Of each class at most `part` flows are looked at, the same for all that have more, and `flows` together.
    SELECT pool, priority, n, greatest(1, max((%(flows)s::integer - before) / following) OVER ()) AS part
    FROM (SELECT pool, priority, count(*) AS n, sum(count(*)) OVER w - count(*) AS before,
                 count(*) OVER () + 1 - row_number() OVER w AS following
          FROM flow GROUP BY pool, priority WINDOW w AS (ORDER BY count(*), pool, priority)) x
),
