-- Messages and timers of some types behind an id, with their owners.
SELECT m.id, t.name, m.entity
FROM sharding_message m
JOIN sharding_type t ON t.id = m.type_id
WHERE m.id > %(after)s AND (%(types)s::text[] IS NULL OR t.name = ANY (%(types)s::text[]))
ORDER BY m.id
LIMIT %(most)s;
