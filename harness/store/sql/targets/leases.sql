-- How many of each resource the leases in flight hold. Returns: resource, number. Needs: nothing on lease (few rows).
SELECT split_part(part, '=', 1), sum(split_part(part, '=', 2)::integer)::integer
FROM lease CROSS JOIN LATERAL string_to_table(lease.signature, ',') AS part
WHERE lease.signature <> ''
GROUP BY 1
