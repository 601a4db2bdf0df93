-- What a tenant has used, by UTC day, newest first: the days rolled up, and the attempts beyond the mark.
-- Returns: day, attempts, tokens, tokens without a price, usd of the others. Needs: usage_day_once, attempt_spent.
-- Locks: nothing. Parameters: tenant, first, last (dates, both included).
WITH span AS MATERIALIZED (
    SELECT %(first)s::date::timestamp AT TIME ZONE 'UTC' AS begins,
           (%(last)s::date + 1)::timestamp AT TIME ZONE 'UTC' AS ends,
           coalesce((SELECT until FROM usage_mark WHERE id = 1), 'epoch') AS mark
),
parts AS (
    SELECT h.day, h.attempts, h.tokens, h.unpriced_tokens, h.usd
    FROM usage_day h
    WHERE h.day BETWEEN %(first)s::date AND %(last)s::date AND h.tenant_id = %(tenant)s
    UNION ALL
    SELECT (a.ended AT TIME ZONE 'UTC')::date, 1, a.tokens, CASE WHEN a.usd IS NULL THEN a.tokens ELSE 0 END, coalesce(a.usd, 0)
    FROM span JOIN attempt a ON a.tokens > 0 AND a.ended >= greatest(span.mark, span.begins) AND a.ended < span.ends
    WHERE a.tenant_id = %(tenant)s
)
SELECT day, sum(attempts)::bigint, sum(tokens)::bigint, sum(unpriced_tokens)::bigint, sum(usd)
FROM parts GROUP BY 1 ORDER BY 1 DESC
