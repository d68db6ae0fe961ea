-- The highest epochs that a further journal has of each shard.
SELECT t.name, s.shard, s.epoch FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id ORDER BY t.name, s.shard;
