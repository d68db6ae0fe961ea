-- As shards.sql, of one type and by number.
SELECT t.name, s.shard, s.epoch, s.home, s.step, t.uses_messages
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < t.number_of_shards
    AND t.name = %(type)s AND s.shard = ANY (%(shards)s::integer[])
ORDER BY s.type_id, s.shard;
