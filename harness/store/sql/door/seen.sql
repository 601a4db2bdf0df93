-- What a door needs to decide on a tenant's submission beside its quota; read once a second for what it asks, by role web.
-- Returns: level of pressure (null: never evaluated); when the door's facts were seen, and how long ago (epoch s, s; null:
-- never); those facts, if they aren't the ones of `known`; the tenant's weight, cap, and tasks in flight; by the number of
-- what is asked: ready tasks of its own (at most `most`) in the (pool, priority), of those with the signature, and of those
-- newer than the facts.
-- Needs: level_pkey, door_pkey, tenant_pkey, task_head; nothing on lease_member (what is in flight).
-- Locks: nothing. Parameters: tenant, known (epoch s), asked (jsonb array: pool, priority, signature), most.
SELECT l.level, extract(epoch FROM d.at)::double precision,
       extract(epoch FROM clock_timestamp() - d.at)::double precision,
       CASE WHEN extract(epoch FROM d.at)::double precision IS DISTINCT FROM %(known)s::double precision THEN d.facts END,
       t.weight, t.cap, (SELECT count(*)::integer FROM lease_member WHERE tenant_id = t.id),
       (SELECT coalesce(json_agg(json_build_array(own.n, own.alike, own.fresh) ORDER BY a.at), '[]')
        FROM jsonb_array_elements(%(asked)s::jsonb) WITH ORDINALITY AS a(one, at)
        CROSS JOIN LATERAL (
            SELECT count(*)::integer AS n, (count(*) FILTER (WHERE signature = a.one ->> 2))::integer AS alike,
                   (count(*) FILTER (WHERE id > d.last_task))::integer AS fresh
            FROM (SELECT signature, id FROM task
                  WHERE ready AND pool = a.one ->> 0 AND priority = (a.one ->> 1)::smallint AND tenant_id = t.id
                  LIMIT %(most)s) x) own)
FROM tenant t
LEFT JOIN level l ON l.id = 1
LEFT JOIN door d ON d.id = 1
WHERE t.id = %(tenant)s
