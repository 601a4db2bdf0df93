-- Reserve an artifact: its bytes count from now on, nobody sees it yet. The caller holds lock.sql and knows of the room.
-- Returns: id. Needs: no index. Locks: the new row.
-- Parameters: public_id, tenant, task, sha256, bytes, name, content_type, path, keep_s.
INSERT INTO artifact (public_id, tenant_id, task_id, state, sha256, bytes, name, content_type, path, expires_at)
VALUES (%(public_id)s, %(tenant)s, %(task)s, 'storing', %(sha256)s, %(bytes)s, %(name)s, %(content_type)s, %(path)s,
        clock_timestamp() + make_interval(secs => %(keep_s)s))
RETURNING id
