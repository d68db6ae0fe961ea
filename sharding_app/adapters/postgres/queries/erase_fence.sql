-- Takes these shards from whoever still holds the entity in memory: a process that was frozen all the while is fenced.
UPDATE sharding_shard SET epoch = epoch + 1, home = NULL, step = 'stopped', updated_at = now()
WHERE type_id = %(type_id)s AND shard = ANY (%(shards)s::integer[])
RETURNING shard, epoch;
