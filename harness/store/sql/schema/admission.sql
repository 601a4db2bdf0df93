-- Rights on what the door goes by and what it has refused. {web}, {engine}, {staff}: see roles.sql.
-- The one row of `door` is sums over tenants, which every door reads and no answer shows. A tenant reads what was refused
-- of its own. One process writes for all its tenants at once, so role {web} adds under any number: rows that only add up.
DO $$
DECLARE
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    ALTER TABLE door_answer ENABLE ROW LEVEL SECURITY;
    ALTER TABLE door_answer FORCE ROW LEVEL SECURITY;
    CREATE POLICY everything ON door_answer TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
    EXECUTE format('CREATE POLICY own_tenant ON door_answer FOR SELECT TO {web} USING (%s)', own);
    CREATE POLICY adds ON door_answer FOR INSERT TO {web} WITH CHECK (true);
    EXECUTE format('CREATE POLICY staff_held ON door_answer AS RESTRICTIVE TO {staff} USING (%s)', held);
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON door, door_answer TO {engine};
GRANT SELECT ON door, door_answer TO {staff}, {web};
GRANT INSERT ON door_answer TO {web};
GRANT USAGE ON SEQUENCE door_answer_id_seq TO {engine}, {web};
GRANT USAGE ON SEQUENCE door_answer_id_seq TO {staff}; -- lists are paged from its last value

-- One row, written every second.
ALTER TABLE door SET (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
