-- What attempts that ended in a span used: they don't change any more once the mark has passed them.
-- Returns: tenant, attempts, tokens. Needs: attempt_spent. Locks: nothing. Parameters: begins, ends.
SELECT tenant_id, count(*), sum(tokens)::bigint FROM attempt
WHERE tokens > 0 AND ended >= %(begins)s AND ended < %(ends)s GROUP BY tenant_id
