-- Insert a run; its tasks follow in the same transaction. Returns: run id. Needs: no index. Locks: the new row.
-- Parameters: public_id, tenant, name, size, fanout_cap.
INSERT INTO run (public_id, tenant_id, name, size, fanout_cap)
VALUES (%(public_id)s, %(tenant)s, %(name)s, %(size)s, %(fanout_cap)s)
RETURNING id
