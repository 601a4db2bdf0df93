-- Nothing, for so long: it holds its connection as a slow query does. Parameters: seconds.
SELECT pg_sleep(%(seconds)s)::text AS slept
