-- In which journals the shards of a type lie.
SELECT s.shard, s.journal FROM sharding_shard s WHERE s.type_id = %(type_id)s;
