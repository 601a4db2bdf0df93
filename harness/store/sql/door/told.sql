-- What doors refused and deferred lately, by minute: under role web of one tenant, else of all.
-- Returns: minute, priority, code, reason, tasks; the newest first. Needs: door_answer_at. Parameters: minutes, most (rows).
SELECT date_trunc('minute', at) AS minute, priority, code, reason, sum(tasks)::integer
FROM door_answer
WHERE at >= date_trunc('minute', clock_timestamp()) - make_interval(mins => %(minutes)s)
GROUP BY 1, 2, 3, 4 HAVING sum(tasks) > 0 ORDER BY 1 DESC, 2, 3, 4 LIMIT %(most)s
