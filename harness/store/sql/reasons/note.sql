-- Note that flows are bound by something else from now on, or by nothing (code null: the flow is gone): the open row ends
-- and the next begins at the same moment, with the sums of all before it. Nothing happens under another epoch.
-- The leader's row isn't locked: a note that has to wait must not keep it from renewing its lead. Of two leaders' notes at
-- once one is left out (one open row a flow), and the next pass of who leads puts right what isn't so.
-- A clock that steps back makes no row end before it began.
-- Returns: how many rows ended, how many began. Needs: wait_reason_of_flow, wait_reason_open, wait_reason_pkey.
-- Locks: the flows' last rows, in the order given. Parameters: epoch; changes (jsonb array, sorted by key).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s
),
c AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(changes)s::jsonb) AS x(
        pool text, priority smallint, tenant integer, run bigint, signature text, code text, subject text, facts jsonb)
    WHERE EXISTS (SELECT FROM fence)
),
last AS MATERIALIZED (
    SELECT c.*, w.id AS last_id, w.until IS NULL AS still, w.before, w.code || ':' || w.subject AS last_key,
           greatest(statement_timestamp(), w.until, w.since) AS at,
           extract(epoch FROM coalesce(w.until, greatest(statement_timestamp(), w.since)) - w.since)::double precision AS spent_s
    FROM c LEFT JOIN LATERAL (
        SELECT id, code, subject, before, since, until FROM wait_reason w
        WHERE w.tenant_id = c.tenant AND w.run_id = c.run AND w.pool = c.pool AND w.priority = c.priority
          AND w.signature = c.signature
        ORDER BY w.tenant_id DESC, w.run_id DESC, w.pool DESC, w.priority DESC, w.signature DESC, w.since DESC, w.id DESC
        LIMIT 1 FOR UPDATE) w ON true
),
ended AS MATERIALIZED (
    -- Not `until IS NULL` once more: that would invite a scan of the whole index wait_reason_open, for each row.
    UPDATE wait_reason SET until = last.at FROM last WHERE wait_reason.id = last.last_id AND last.still
    RETURNING 1
),
begun AS (
    INSERT INTO wait_reason (pool, priority, tenant_id, run_id, signature, code, subject, facts, before, since)
    SELECT pool, priority, tenant, run, signature, code, subject, facts,
           CASE WHEN last_id IS NULL THEN '{}'::jsonb ELSE before || jsonb_build_object(
               last_key, coalesce((before ->> last_key)::double precision, 0) + spent_s) END, at
    FROM last
    WHERE code IS NOT NULL AND (SELECT count(*) FROM ended) >= 0 -- after the ends: one open row a flow
    ON CONFLICT (tenant_id, run_id, pool, priority, signature) WHERE until IS NULL DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*)::integer FROM ended), (SELECT count(*)::integer FROM begun)
