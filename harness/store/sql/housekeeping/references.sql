-- Foreign keys between tables of ours. Returns: the table that refers, the one referred to. Parameters: none.
SELECT DISTINCT a.relname, b.relname
FROM pg_constraint k
JOIN pg_class a ON a.oid = k.conrelid
JOIN pg_class b ON b.oid = k.confrelid
WHERE k.contype = 'f'
