-- Shards beyond the type's present number are of a former configuration: their rows only keep the epochs.
SELECT t.name, s.shard, s.epoch, s.home, s.step, t.uses_messages
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
ORDER BY s.type_id, s.shard;
