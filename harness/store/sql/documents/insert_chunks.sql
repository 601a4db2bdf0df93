-- Insert chunks of one document. Parameters: tenant, document, marks, first (ordinal), starts, stops, texts (arrays).
INSERT INTO chunk (tenant_id, document_id, ordinal, start, stop, text, marks)
SELECT %(tenant)s, %(document)s, %(first)s + n - 1, start, stop, text, %(marks)s::text[]
FROM unnest(%(starts)s::int[], %(stops)s::int[], %(texts)s::text[]) WITH ORDINALITY AS c (start, stop, text, n)
