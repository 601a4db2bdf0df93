-- Delete older content of a source. Needs: document_of_source. Parameters: tenant, source, sha256 (the one that stays).
-- Waits for nobody: a row that is locked is being given another source, or goes anyway; so no order of locks is needed.
DELETE FROM document WHERE id IN (
    SELECT id FROM document WHERE tenant_id = %(tenant)s AND source = %(source)s AND source <> '' AND sha256 <> %(sha256)s
    FOR UPDATE SKIP LOCKED
)
