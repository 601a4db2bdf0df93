-- The most attempts that ever ran at once, per pool: exact, from their recorded beginnings and ends.
-- Returns: pool, number. Needs: attempt_once. Parameters: since_id (tasks).
SELECT pool, max(running)::integer FROM (
    SELECT pool, sum(step) OVER (PARTITION BY pool ORDER BY at, step ROWS UNBOUNDED PRECEDING) AS running
    FROM attempt a JOIN task t ON t.id = a.task_id
    CROSS JOIN LATERAL (VALUES (a.started, 1), (a.ended, -1)) AS edge(at, step)
    WHERE a.task_id >= %(since_id)s AND a.started IS NOT NULL) steps
GROUP BY pool ORDER BY pool
