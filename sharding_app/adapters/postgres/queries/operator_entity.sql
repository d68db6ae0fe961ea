-- Messages and timers of one entity. Its timers and the messages that were set aside stand in indexes of entities. The others
-- are looked for among those of its shard, the first that are due: `searched` of them, and as many parked ones.
WITH waiting AS MATERIALIZED (
    SELECT m.id, m.entity, m.due
    FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.shard = %(shard)s AND NOT m.parked
    ORDER BY m.due
    LIMIT %(searched)s
), parked AS MATERIALIZED (
    SELECT m.id, m.entity, m.due
    FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.shard = %(shard)s AND m.parked
    ORDER BY m.due
    LIMIT %(searched)s
), own AS (
    SELECT waiting.id, waiting.due FROM waiting WHERE waiting.entity = %(entity)s
    UNION
    SELECT parked.id, parked.due FROM parked WHERE parked.entity = %(entity)s
    UNION
    (
        SELECT m.id, m.due
        FROM sharding_message m
        WHERE m.type_id = %(type_id)s AND m.entity = %(entity)s AND m.key IS NOT NULL
        LIMIT %(limit)s
    )
    UNION
    (
        SELECT m.id, m.due
        FROM sharding_message m
        WHERE m.type_id = %(type_id)s AND (%(shard)s < 0 OR m.shard = %(shard)s) AND m.entity = %(entity)s
            AND m.key IS NULL AND m.error <> '' AND NOT m.parked
        LIMIT %(limit)s
    )
)
SELECT own.id, (SELECT count(*) FROM waiting) < %(searched)s AND (SELECT count(*) FROM parked) < %(searched)s
FROM (VALUES (1)) AS always (one)
LEFT JOIN own ON true
ORDER BY own.due, own.id
LIMIT %(limit)s;
