-- What the leader has added up for the UTC day that its mark stands in.
-- Returns: the day's begin, the mark, and per tenant: tenant, attempts, tokens (nulls: no tenant has any).
-- No rows when there is no mark, or it stands still (nobody leads: then nothing is added up).
-- Needs: usage_day_once. Locks: nothing. Parameters: none.
SELECT span.begins, span.mark, h.tenant_id, h.attempts, h.tokens
FROM (
    SELECT date_trunc('day', until - interval '1 microsecond', 'UTC') AS begins, until AS mark
    FROM usage_mark WHERE id = 1 AND until > clock_timestamp() - interval '1 hour'
) span
LEFT JOIN usage_day h ON h.day = (span.begins AT TIME ZONE 'UTC')::date
