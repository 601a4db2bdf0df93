-- A page of schedules by id. Returns: see store.schedules.ScheduleView.
-- Needs: schedule_of_tenant, or schedule_pkey for all tenants. Parameters: tenant (null: all), after (id), most.
SELECT s.id, s.public_id, tenant.name, s.name, s.kind, s.input, s.priority, s.ttl_s, s.title, s.tags, s.cron, s.zone,
       s.catch_up, s.enabled, s.stopped_because, s.next_at, s.last_fired_at, s.last_task, s.fired, s.author, s.created_at,
       s.changed_at
FROM schedule s JOIN tenant ON tenant.id = s.tenant_id
WHERE (%(tenant)s::integer IS NULL OR s.tenant_id = %(tenant)s::integer) AND s.id > %(after)s
ORDER BY s.id LIMIT %(most)s
