-- How often each term stands below an id, counted no further than `most`. Returns: term, number.
-- Needs: task_term_pkey (index only; at most `most` entries a term). Parameters: tenant, terms, before (id), most.
SELECT x.term, (SELECT count(*) FROM (
    SELECT FROM task_term m WHERE m.tenant_id = %(tenant)s AND m.term = x.term AND m.task_id < %(before)s
    LIMIT %(most)s) AS counted)::integer
FROM unnest(%(terms)s::text[]) AS x(term)
