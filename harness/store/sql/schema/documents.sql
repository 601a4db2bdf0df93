-- Documents and chunks: search vector, index, and row-level security. {web}, {engine}, {staff}: see roles.sql.
-- The vector carries its tenant and its document's marks as lexemes that no text yields (they have a blank in them), so
-- that one GIN index answers "this word, of this tenant, with this tag": without them a common word would lead through the
-- chunks of all tenants, and a filter through all chunks that it is there to leave out.
ALTER TABLE chunk ADD COLUMN vector tsvector NOT NULL GENERATED ALWAYS AS
    (to_tsvector('english', text) || array_to_tsvector(('tenant ' || tenant_id::text) || marks)) STORED;
-- fastupdate off: a search never has to walk a list of entries that wait to be merged.
CREATE INDEX chunk_search ON chunk USING gin (vector) WITH (fastupdate = off);
ALTER TABLE chunk ADD CONSTRAINT chunk_document FOREIGN KEY (document_id) REFERENCES document (id) ON DELETE CASCADE;

DO $$
DECLARE
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH tab IN ARRAY ARRAY['document', 'chunk'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        EXECUTE format('CREATE POLICY own_tenant ON %I FOR SELECT TO {web} USING (%s)', tab, own);
    END LOOP;
END $$;

GRANT SELECT, INSERT, UPDATE, DELETE ON document, chunk TO {engine}, {staff};
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO {engine}, {staff};
GRANT SELECT ON document, chunk TO {web};
