-- Row-level security and storage of clocks and credits; who may say what a lease owes. {web}, {engine}, {staff}: roles.sql.
DO $$
DECLARE
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    ALTER TABLE clock ENABLE ROW LEVEL SECURITY;
    ALTER TABLE clock FORCE ROW LEVEL SECURITY;
    CREATE POLICY everything ON clock TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
    EXECUTE format('CREATE POLICY staff_held ON clock AS RESTRICTIVE TO {staff} USING (%s)', held);
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON clock, class_credit TO {engine};
GRANT SELECT ON clock, class_credit TO {staff};
-- A person who takes a released task off its lease takes back what was charged for it.
GRANT INSERT ON charge TO {web};

-- Rows that change with every release, in indexes that don't.
ALTER TABLE clock SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE class_credit SET (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
-- A flow changes once, when the leader learns of it: the room on its pages would only be read for nothing.
ALTER TABLE flow SET (fillfactor = 90);
