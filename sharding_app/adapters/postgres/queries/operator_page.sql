-- A page of a type's messages and timers for an operator: parked ones or the others, in the order in which they are due, after
-- a place, and with `late` those that have been due for as many seconds. Each shard gives its first ones along the index.
-- Of a shard of which this journal has a copy alone, only messages from outside are shown.
WITH place AS MATERIALIZED (
    SELECT place.shard, NOT EXISTS (
        SELECT FROM unnest(%(copied_types)s::integer[], %(copied_shards)s::integer[]) AS copied (type_id, shard)
        WHERE copied.type_id = %(type_id)s AND copied.shard = place.shard) AS lies
    FROM generate_series(0, %(shards)s::integer - 1) AS place (shard)
)
SELECT m.id
FROM place
CROSS JOIN LATERAL (
    SELECT m.id, m.due
    FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.shard = place.shard AND m.parked = %(parked)s AND (place.lies OR m.epoch IS NULL)
        AND m.due <= coalesce(now() - %(late)s::float8 * interval '1 second', 'infinity')
        AND (m.due, m.id COLLATE "POSIX") > (%(due)s::timestamptz, %(after)s)
    ORDER BY m.due, m.id COLLATE "POSIX"
    LIMIT %(limit)s
) m
ORDER BY m.due, m.id
LIMIT %(limit)s;
