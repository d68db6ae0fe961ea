-- Messages and timers of some types behind an id, with their owners, and marks of messages, with the entities that took them.
SELECT m.id, t.name, m.entity
FROM (
    SELECT id, type_id, entity FROM sharding_message
    UNION ALL
    SELECT id, type_id, entity FROM sharding_taken
) m
JOIN sharding_type t ON t.id = m.type_id
WHERE m.id > %(after)s AND (%(types)s::text[] IS NULL OR t.name = ANY (%(types)s::text[]))
ORDER BY m.id
LIMIT %(most)s;
