SELECT m.id FROM sharding_message m
WHERE m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]) AND m.epoch IS NOT NULL
ORDER BY m.id
FOR UPDATE;
