-- How long tasks of kinds take, where it has been measured. Returns: kind, seconds. Needs: estimate_pkey.
-- Parameters: kinds.
SELECT kind, mean_s FROM estimate WHERE kind = ANY(%(kinds)s::text[])
