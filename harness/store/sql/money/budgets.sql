-- Budgets of tenants from `first` to `last`, with what was spent in the current UTC day and month.
-- Returns: tenant, day's and month's budget, soft ratio, spent in the day, in the month, seconds left of each.
-- Needs: budget_pkey. Locks: nothing. Parameters: first, last (tenant ids).
SELECT b.tenant_id, b.day_usd, b.month_usd, b.soft_ratio,
       CASE WHEN b.counted_at >= today.day THEN b.spent_day_usd ELSE 0 END,
       CASE WHEN b.counted_at >= today.month THEN b.spent_month_usd ELSE 0 END,
       extract(epoch FROM today.day + interval '1 day' - clock_timestamp())::double precision,
       extract(epoch FROM today.next_month - clock_timestamp())::double precision
FROM budget b CROSS JOIN (
    SELECT date_trunc('day', clock_timestamp(), 'UTC') AS day, date_trunc('month', clock_timestamp(), 'UTC') AS month,
           (date_trunc('month', clock_timestamp() AT TIME ZONE 'UTC') + interval '1 month') AT TIME ZONE 'UTC' AS next_month
) today
WHERE b.tenant_id BETWEEN %(first)s AND %(last)s
ORDER BY b.tenant_id
