-- Rights on what was counted, and how the row is kept. {web}, {engine}, {staff}: see roles.sql. Sums over all tenants, and the
-- names of the largest: no tenant reads it. Web sees it only where it says that it answers a scrape, which has a door of its own.
ALTER TABLE tally ENABLE ROW LEVEL SECURITY;
ALTER TABLE tally FORCE ROW LEVEL SECURITY;
CREATE POLICY everything ON tally TO {engine}, {staff}, CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY scrape ON tally FOR SELECT TO {web} USING (
    current_setting('harness.scrape', true) = 'yes' AND coalesce(current_setting('harness.tenant', true), '') = '');
GRANT SELECT, INSERT, UPDATE, DELETE ON tally TO {engine};
GRANT SELECT ON tally TO {staff}, {web};

-- One row, rewritten every few seconds, most of it out of line.
ALTER TABLE tally SET (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
                       toast.autovacuum_vacuum_scale_factor = 0, toast.autovacuum_vacuum_threshold = 5000);

-- What people and the clock do to tasks: few events, so that claim, release and settle pay for none of it.
CREATE INDEX event_rare ON event (at)
    WHERE event IN ('approve', 'deny', 'approval_timeout', 'cancel', 'expire', 'redrive');
