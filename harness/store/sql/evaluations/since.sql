-- The last evaluation of each span of `each_s` in the last `since_s`. Returns: at (epoch seconds), level, signals, resources;
-- the oldest first. Needs: evaluation_pkey (cost: the rows of that time). Locks: nothing. Parameters: since_s, each_s.
SELECT extract(epoch FROM at)::double precision, level, signals, resources FROM (
    SELECT DISTINCT ON (floor(extract(epoch FROM at) / %(each_s)s)) at, level, signals, resources
    FROM evaluation WHERE at > clock_timestamp() - make_interval(secs => %(since_s)s)
    ORDER BY floor(extract(epoch FROM at) / %(each_s)s), at DESC) x
ORDER BY at
