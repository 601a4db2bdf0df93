-- Add rows by table to the audit entry of an act under way. Returns: nothing. Needs: audit_entry_pkey.
-- Parameters: id, gone (jsonb: table -> rows).
UPDATE audit_entry SET data = (
    SELECT coalesce(jsonb_object_agg(k, n), '{}') FROM (
        SELECT k, sum(n) AS n FROM (
            SELECT key AS k, value::bigint AS n FROM jsonb_each_text(audit_entry.data)
            UNION ALL
            SELECT key, value::bigint FROM jsonb_each_text(%(gone)s::jsonb)
        ) both_of_them WHERE n > 0 GROUP BY k
    ) summed
)
WHERE id = %(id)s
