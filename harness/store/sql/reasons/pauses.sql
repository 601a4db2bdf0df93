-- Pauses in force. Returns: scope, key, source, author, reason, since, until (epoch seconds). Needs: nothing (a small table).
SELECT scope, key, source, author, reason, extract(epoch FROM created_at)::double precision,
       extract(epoch FROM until)::double precision
FROM pause WHERE resumed_at IS NULL AND (until IS NULL OR until > clock_timestamp())
