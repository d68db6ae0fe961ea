DELETE FROM sharding_taken m WHERE m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]);
