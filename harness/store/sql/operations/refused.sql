-- What doors refused and put off lately, by tenant. Returns: tenant id, name, refused, put off (tasks). Needs: door_answer_at,
-- tenant_pkey. Locks: nothing. Parameters: minutes.
SELECT x.tenant_id, tenant.name, x.refused, x.deferred
FROM (SELECT tenant_id, coalesce(sum(tasks) FILTER (WHERE code <> 'deferred'), 0)::integer AS refused,
             coalesce(sum(tasks) FILTER (WHERE code = 'deferred'), 0)::integer AS deferred
      FROM door_answer WHERE at >= clock_timestamp() - make_interval(mins => %(minutes)s) GROUP BY tenant_id) x
JOIN tenant ON tenant.id = x.tenant_id
ORDER BY 1
