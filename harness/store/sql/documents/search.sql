-- The best chunks of one tenant for a query, with how many were ranked. Returns: see store.documents.search.
-- Needs: chunk_search (the lexemes of query, tenant and filters are intersected in it), document's primary key.
-- At most `candidates` matches are ranked, so that a word that stands everywhere costs as little as a rare one.
-- Parameters: tenant, query, marks (a tsquery: tenant and filters), candidates, most.
WITH asked AS MATERIALIZED (
    SELECT websearch_to_tsquery('english', %(query)s) AS query
),
matching AS MATERIALIZED (
    SELECT c.id, c.vector FROM chunk c
    WHERE c.vector @@ ((SELECT query FROM asked) && %(marks)s::tsquery)
      AND c.tenant_id = %(tenant)s
      AND (SELECT numnode(query) FROM asked) > 0  -- a query of nothing but stop words asks for nothing
    LIMIT %(candidates)s
),
best AS MATERIALIZED (
    SELECT m.id, ts_rank_cd(m.vector, (SELECT query FROM asked)) AS rank, count(*) OVER () AS looked_at
    FROM matching m ORDER BY rank DESC, m.id LIMIT %(most)s
)
SELECT b.looked_at, d.public_id, d.name, d.title, d.content_type, c.ordinal, c.start, c.stop, b.rank,
       ts_headline('english', c.text, (SELECT query FROM asked),
                   'StartSel=**, StopSel=**, MaxWords=40, MinWords=20, MaxFragments=2, FragmentDelimiter=" ... "')
FROM best b JOIN chunk c ON c.id = b.id JOIN document d ON d.id = c.document_id
ORDER BY b.rank DESC, b.id
