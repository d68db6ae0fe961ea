SELECT 1 FROM sharding_shard
WHERE type_id = %(type_id)s AND shard = %(shard)s AND epoch = %(epoch)s AND home = %(home)s;
