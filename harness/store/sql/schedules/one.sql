-- One schedule, locked against firing when asked. Returns: see store.schedules.ScheduleView.
-- Needs: schedule's unique index on public_id, tenant_pkey. Parameters: schedule (public id).
SELECT s.id, s.public_id, tenant.name, s.name, s.kind, s.input, s.priority, s.ttl_s, s.title, s.tags, s.cron, s.zone,
       s.catch_up, s.enabled, s.stopped_because, s.next_at, s.last_fired_at, s.last_task, s.fired, s.author, s.created_at,
       s.changed_at
FROM schedule s JOIN tenant ON tenant.id = s.tenant_id
WHERE s.public_id = %(schedule)s
