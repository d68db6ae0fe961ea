-- The copies that these shards have left in a journal are deleted.
DELETE FROM sharding_move m
WHERE m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]) AND m.source = %(source)s AND m.step = 'moved'
RETURNING m.shard;
