-- How long tasks waited for their first start. Returns: priority, p50 and p95 in seconds, number.
-- Needs: task_pkey. Parameters: since_id.
SELECT priority, percentile_cont(0.5) WITHIN GROUP (ORDER BY w)::double precision,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY w)::double precision, count(*)
FROM (SELECT priority, extract(epoch FROM first_claimed_at - created_at) AS w FROM task
      WHERE id >= %(since_id)s AND first_claimed_at IS NOT NULL) waits
GROUP BY priority ORDER BY priority
