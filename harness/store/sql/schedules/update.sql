-- Write all that a person may change of a schedule; the caller holds its lock. Returns: true. Needs: schedule's unique
-- index on public_id. Parameters: schedule (public id), the columns' values.
UPDATE schedule SET
    name = %(name)s, kind = %(kind)s, input = %(input)s::jsonb, priority = %(priority)s, ttl_s = %(ttl_s)s,
    title = %(title)s, tags = %(tags)s::text[], cron = %(cron)s, zone = %(zone)s, catch_up = %(catch_up)s,
    enabled = %(enabled)s, stopped_because = %(stopped_because)s, next_at = %(next_at)s, look_at = %(next_at)s,
    changed_at = clock_timestamp()
WHERE public_id = %(schedule)s
RETURNING true
