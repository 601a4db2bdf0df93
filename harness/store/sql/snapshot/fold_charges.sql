-- Fold what was used into the estimates, each charge once: deleted and added up in one statement, under the epoch.
-- Returns: how many charges. Needs: nothing on charge (few rows), estimate_pkey. Locks: leader (share), charges, estimates.
-- Parameters: epoch, weight (of one task in the moving mean).
WITH fence AS MATERIALIZED (
    SELECT FROM leader WHERE id = 1 AND epoch = %(epoch)s FOR SHARE
),
gone AS (
    DELETE FROM charge WHERE EXISTS (SELECT FROM fence) RETURNING kind, n, slot_s
),
used AS (
    SELECT kind, sum(n) AS n, sum(slot_s) / sum(n) AS mean_s FROM gone GROUP BY kind
),
i AS (
    INSERT INTO estimate (kind, mean_s) SELECT kind, mean_s FROM used
    ON CONFLICT (kind) DO UPDATE SET mean_s = estimate.mean_s + (excluded.mean_s - estimate.mean_s)
        * (1 - power(1 - %(weight)s::double precision, least(100, (SELECT n FROM used WHERE used.kind = excluded.kind))))
)
SELECT count(*) FROM gone
