-- As `operator_page`, those that were set aside after a failure.
SELECT m.id
FROM sharding_message m
WHERE m.type_id = %(type_id)s AND m.error <> '' AND NOT m.parked
    AND (m.epoch IS NULL OR NOT EXISTS (
        SELECT FROM unnest(%(copied_types)s::integer[], %(copied_shards)s::integer[]) AS copied (type_id, shard)
        WHERE copied.type_id = m.type_id AND copied.shard = m.shard))
    AND (m.due, m.id) > (%(due)s::timestamptz, %(after)s)
ORDER BY m.due, m.id
LIMIT %(limit)s;
