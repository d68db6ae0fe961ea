SELECT shard, entity FROM sharding_remembered WHERE type_id = %(type_id)s ORDER BY shard, entity LIMIT %(number)s;
