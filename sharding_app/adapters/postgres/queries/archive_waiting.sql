-- Which of these entities have a message or a timer that waits, of their own or of others to them. It reads all that waits,
-- once for a file.
SELECT DISTINCT named.entity
FROM sharding_message m
CROSS JOIN LATERAL (
    SELECT m.entity WHERE m.type_id = %(type_id)s
    UNION ALL
    SELECT m.target WHERE m.target_type = %(type)s
) named
WHERE named.entity = ANY (%(entities)s::text[]);
