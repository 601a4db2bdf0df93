-- Move the mark on: add attempts that ended before it, each once, to the days they belong to. Nothing happens until the
-- mark is `step_s` behind; where there is none, it is made. An attempt may commit `margin_s` after the time it carries:
-- longer than any statement.
-- The leader's row isn't locked: a round that has to wait must not keep it from renewing its lead.
-- Returns: rows of days touched. Needs: attempt_spent, usage_day_once. Locks: the mark (so rounds don't overlap), days.
-- Parameters: step_s, margin_s, epoch.
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s
),
made AS (
    INSERT INTO usage_mark (id, until)
    SELECT 1, coalesce((SELECT date_trunc('hour', min(ended)) FROM attempt WHERE tokens > 0),
                       clock_timestamp() - make_interval(secs => %(margin_s)s))
    WHERE NOT EXISTS (SELECT FROM usage_mark WHERE id = 1) AND EXISTS (SELECT FROM fence)
    ON CONFLICT (id) DO NOTHING
),
mark AS MATERIALIZED (
    SELECT until AS begins, least(until + interval '1 day', clock_timestamp() - make_interval(secs => %(margin_s)s)) AS ends
    FROM usage_mark
    WHERE id = 1 AND until < clock_timestamp() - make_interval(secs => %(margin_s)s + %(step_s)s)
      AND EXISTS (SELECT FROM fence)
    FOR UPDATE
),
added AS (
    INSERT INTO usage_day (tenant_id, day, attempts, tokens, unpriced_tokens, usd)
    SELECT a.tenant_id, (a.ended AT TIME ZONE 'UTC')::date, count(*), sum(a.tokens),
           coalesce(sum(a.tokens) FILTER (WHERE a.usd IS NULL), 0), coalesce(sum(a.usd), 0)
    FROM mark JOIN attempt a ON a.tokens > 0 AND a.ended >= mark.begins AND a.ended < mark.ends
    GROUP BY a.tenant_id, (a.ended AT TIME ZONE 'UTC')::date
    ON CONFLICT (tenant_id, day) DO UPDATE SET
        attempts = usage_day.attempts + excluded.attempts, tokens = usage_day.tokens + excluded.tokens,
        unpriced_tokens = usage_day.unpriced_tokens + excluded.unpriced_tokens, usd = usage_day.usd + excluded.usd
    RETURNING 1
),
moved AS (
    UPDATE usage_mark SET until = mark.ends FROM mark WHERE usage_mark.id = 1
)
SELECT count(*) FROM added
