-- Rights on evaluations of the pressure. {engine}, {staff}: see roles.sql. Rows tell of all tenants at once, so who is held to
-- one sees none of them, and neither does the role of the web.
DO $$
BEGIN
    ALTER TABLE evaluation ENABLE ROW LEVEL SECURITY;
    ALTER TABLE evaluation FORCE ROW LEVEL SECURITY;
    CREATE POLICY everything ON evaluation TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
    CREATE POLICY staff_held ON evaluation AS RESTRICTIVE TO {staff}
        USING (nullif(current_setting('harness.tenant', true), '') IS NULL);
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON evaluation TO {engine};
GRANT SELECT ON evaluation TO {staff};

-- A row every few seconds, and as many deleted.
ALTER TABLE evaluation SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);
