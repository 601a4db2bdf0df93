-- Write down a finding, or that one that stands open was seen again. Returns: its id, whether it is new.
-- Needs: audit_finding_open. Locks: its row. Parameters: rule, level, subject, subject_id, tenant, facts.
INSERT INTO audit_finding (rule, level, subject, subject_id, tenant_id, facts, found_at, seen_at, seen)
VALUES (%(rule)s, %(level)s, %(subject)s, %(subject_id)s, %(tenant)s, %(facts)s::jsonb, clock_timestamp(), clock_timestamp(), 1)
ON CONFLICT (rule, subject) WHERE closed_at IS NULL DO UPDATE SET
    seen_at = excluded.seen_at, seen = audit_finding.seen + 1, facts = excluded.facts, level = excluded.level
RETURNING id, xmax = 0
