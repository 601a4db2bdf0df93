-- Findings by rule, in all the time that is kept. Returns: rule, found, repaired, open. Needs: nothing (one row a finding).
-- Parameters: none.
SELECT rule, count(*), count(repaired_at), count(*) FILTER (WHERE closed_at IS NULL) FROM audit_finding GROUP BY rule ORDER BY rule
