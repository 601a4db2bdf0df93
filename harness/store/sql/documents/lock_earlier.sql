-- What a new document takes the place of: the same content, or older content of the same source. Returns: id, sha256.
-- Needs: document_once, document_of_source. Locks by id, so that two tasks that replace each other's rows wait, not clash.
-- Parameters: tenant, sha256, source ('': none).
WITH earlier AS MATERIALIZED (
    SELECT id FROM document WHERE tenant_id = %(tenant)s AND sha256 = %(sha256)s
    UNION
    SELECT id FROM document WHERE tenant_id = %(tenant)s AND source = %(source)s AND source <> ''
)
SELECT d.id, d.sha256 FROM document d WHERE d.id IN (SELECT id FROM earlier) ORDER BY d.id FOR UPDATE
