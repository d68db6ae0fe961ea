SELECT shard, entity
FROM sharding_remembered
WHERE type_id = %(type_id)s AND shard = ANY (%(shards)s)
ORDER BY shard, entity;
