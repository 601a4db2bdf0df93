-- Where counting begins: at what there is now. Returns: a JSON object of the highest numbers, by table.
-- Needs: the primary keys. Parameters: none.
SELECT json_build_object(
    'attempt', (SELECT coalesce(max(id), 0) FROM attempt),
    'task', (SELECT coalesce(max(id), 0) FROM task),
    'door_answer', (SELECT coalesce(max(id), 0) FROM door_answer),
    'level_change', (SELECT coalesce(max(id), 0) FROM level_change))
