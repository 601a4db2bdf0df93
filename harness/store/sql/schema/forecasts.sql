-- Row-level security and rights of the forecasts. {web}, {engine}, {staff}: see roles.sql. A tenant reads those of its own
-- tasks and runs. How they are borne out is counts and seconds over all, without names: that every tenant reads.
DO $$
DECLARE
    tab text;
    own constant text := 'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
    held constant text := 'nullif(current_setting(''harness.tenant'', true), '''') IS NULL OR '
        'tenant_id = nullif(current_setting(''harness.tenant'', true), '''')::integer';
BEGIN
    FOREACH tab IN ARRAY ARRAY['forecast', 'run_forecast'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', tab);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', tab);
        EXECUTE format('CREATE POLICY everything ON %I TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true)', tab);
        EXECUTE format('CREATE POLICY own_tenant ON %I FOR SELECT TO {web} USING (%s)', tab, own);
        EXECUTE format('CREATE POLICY staff_held ON %I AS RESTRICTIVE TO {staff} USING (%s)', tab, held);
        EXECUTE format('GRANT SELECT ON %I TO {web}', tab);
    END LOOP;
END $$;
GRANT SELECT, INSERT, UPDATE, DELETE ON forecast, run_forecast, forecast_borne, forecast_pass TO {engine};
GRANT SELECT ON forecast, run_forecast, forecast_borne, forecast_pass TO {staff};
GRANT SELECT (id, at, took_s, waiting, looked_at, trust, calibration) ON forecast_pass TO {web};

-- Rewritten as a whole by every pass.
ALTER TABLE forecast SET (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
ALTER TABLE run_forecast SET (fillfactor = 40, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE forecast_pass SET (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
