-- Lock one schedule that is due, and read what firing needs. Others lock another one, or none.
-- Returns: see store.schedules.DueSchedule. Needs: schedule_due, tenant_pkey. Locks: the schedule's row.
-- Parameters: now (null: the clock), apart (ids to leave out).
SELECT s.id, s.public_id, s.name, s.kind, s.input, s.priority, s.ttl_s, s.title, s.tags, s.cron, s.zone, s.catch_up,
       s.next_at, coalesce(%(now)s::timestamptz, clock_timestamp()),
       tenant.id, tenant.name, tenant.top_priority, tenant.backlog_quota
FROM schedule s JOIN tenant ON tenant.id = s.tenant_id
WHERE s.enabled AND s.look_at <= coalesce(%(now)s::timestamptz, clock_timestamp()) AND NOT s.id = ANY(%(apart)s::bigint[])
ORDER BY s.look_at LIMIT 1 FOR UPDATE OF s SKIP LOCKED
