-- Insert a schedule of a tenant that has fewer than `most`. Returns: public id; no row when there are too many.
-- Needs: schedule_of_tenant. Locks: the new row. Parameters: the columns' values; most.
INSERT INTO schedule (tenant_id, name, kind, input, priority, ttl_s, title, tags, cron, zone, catch_up, enabled, next_at,
                      look_at, author)
SELECT %(tenant)s, %(name)s, %(kind)s, %(input)s::jsonb, %(priority)s, %(ttl_s)s, %(title)s, %(tags)s::text[], %(cron)s,
       %(zone)s, %(catch_up)s, %(enabled)s, %(next_at)s, %(next_at)s, %(author)s
WHERE (SELECT count(*) FROM schedule WHERE tenant_id = %(tenant)s) < %(most)s
RETURNING public_id
