-- What a tenant has used, by UTC day, newest first: the hours rolled up, and the attempts beyond the mark.
-- Returns: day, attempts, tokens, tokens without a price, usd of the others. Needs: usage_hour_once, attempt_spent.
-- Locks: nothing. Parameters: tenant, first, last (dates, both included).
WITH span AS MATERIALIZED (
    SELECT %(first)s::date::timestamp AT TIME ZONE 'UTC' AS begins,
           (%(last)s::date + 1)::timestamp AT TIME ZONE 'UTC' AS ends,
           (SELECT until FROM usage_mark WHERE id = 1) AS mark
),
parts AS (
    SELECT h.hour AS at, h.attempts, h.tokens, h.unpriced_tokens, h.usd
    FROM span JOIN usage_hour h ON h.hour >= span.begins AND h.hour < span.ends
    WHERE h.tenant_id = %(tenant)s
    UNION ALL
    SELECT a.ended, 1, a.tokens, CASE WHEN a.usd IS NULL THEN a.tokens ELSE 0 END, coalesce(a.usd, 0)
    FROM span JOIN attempt a ON a.tokens > 0 AND a.ended >= greatest(span.mark, span.begins) AND a.ended < span.ends
    WHERE a.tenant_id = %(tenant)s
)
SELECT (at AT TIME ZONE 'UTC')::date, sum(attempts)::bigint, sum(tokens)::bigint, sum(unpriced_tokens)::bigint, sum(usd)
FROM parts GROUP BY 1 ORDER BY 1 DESC
