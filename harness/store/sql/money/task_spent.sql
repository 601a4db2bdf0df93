-- What a task's ended attempts have used. Returns: tokens, tokens without a price, usd of the others.
-- Needs: attempt_once. Locks: nothing. Parameters: task.
SELECT coalesce(sum(tokens), 0)::bigint, coalesce(sum(tokens) FILTER (WHERE usd IS NULL), 0)::bigint, coalesce(sum(usd), 0)
FROM attempt WHERE task_id = %(task)s
