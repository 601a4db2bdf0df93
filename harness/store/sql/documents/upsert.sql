-- Insert a document or replace the one with the same content; its id stays. Returns: id, public id.
-- Needs: document_once. Waits for a transaction that inserts the same content.
INSERT INTO document (tenant_id, sha256, name, title, content_type, source, tags, size_bytes, characters, words, chunks)
VALUES (%(tenant)s, %(sha256)s, %(name)s, %(title)s, %(content_type)s, %(source)s, %(tags)s::text[], %(size_bytes)s,
        %(characters)s, %(words)s, %(chunks)s)
ON CONFLICT (tenant_id, sha256) DO UPDATE SET
    name = EXCLUDED.name, title = EXCLUDED.title, content_type = EXCLUDED.content_type, source = EXCLUDED.source,
    tags = EXCLUDED.tags, size_bytes = EXCLUDED.size_bytes, characters = EXCLUDED.characters, words = EXCLUDED.words,
    chunks = EXCLUDED.chunks, updated_at = now()
RETURNING id, public_id
