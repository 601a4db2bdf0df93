-- Count anew what tenants with a budget have spent in this UTC day and month: those that have attempts beyond the mark
-- (the others' sums can't have changed), and those never counted.
-- The leader's row isn't locked: a count that has to wait must not keep it from renewing its lead.
-- Returns: tenants counted. Needs: attempt_spent, usage_day_once, budget_pkey. Locks: their budget rows.
-- Parameters: epoch, unpriced_usd (for a million tokens without a price).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s
),
today AS MATERIALIZED (
    SELECT statement_timestamp() AS at, date_trunc('day', statement_timestamp(), 'UTC') AS day,
           date_trunc('month', statement_timestamp(), 'UTC') AS month,
           coalesce((SELECT until FROM usage_mark WHERE id = 1), 'epoch') AS mark
),
live AS MATERIALIZED (
    SELECT a.tenant_id, sum(spent.usd) FILTER (WHERE a.ended >= today.day) AS day_usd,
           sum(spent.usd) FILTER (WHERE a.ended >= today.month) AS month_usd
    FROM today JOIN attempt a ON a.tokens > 0 AND a.ended >= today.mark
    CROSS JOIN LATERAL (SELECT coalesce(a.usd, a.tokens * %(unpriced_usd)s::double precision / 1e6) AS usd) spent
    GROUP BY a.tenant_id
),
due AS MATERIALIZED (
    SELECT b.tenant_id, coalesce(live.day_usd, 0) AS day_usd, coalesce(live.month_usd, 0) AS month_usd
    FROM budget b LEFT JOIN live ON live.tenant_id = b.tenant_id
    WHERE (live.tenant_id IS NOT NULL OR b.counted_at IS NULL) AND EXISTS (SELECT FROM fence)
),
sums AS MATERIALIZED (
    SELECT due.tenant_id, due.day_usd + rolled.day_usd AS day_usd, due.month_usd + rolled.month_usd AS month_usd
    FROM due CROSS JOIN today CROSS JOIN LATERAL (
        SELECT coalesce(sum(h.usd + h.unpriced_tokens * %(unpriced_usd)s::double precision / 1e6)
                        FILTER (WHERE h.day >= (today.day AT TIME ZONE 'UTC')::date), 0) AS day_usd,
               coalesce(sum(h.usd + h.unpriced_tokens * %(unpriced_usd)s::double precision / 1e6), 0) AS month_usd
        FROM usage_day h WHERE h.tenant_id = due.tenant_id AND h.day >= (today.month AT TIME ZONE 'UTC')::date
    ) rolled
),
u AS (
    UPDATE budget SET spent_day_usd = sums.day_usd, spent_month_usd = sums.month_usd, counted_at = today.at
    FROM sums CROSS JOIN today WHERE budget.tenant_id = sums.tenant_id
    RETURNING 1
)
SELECT count(*) FROM u
