-- As shards.sql, of some types. A statement for each question: a condition that may be switched off has no index.
SELECT t.name, s.shard, s.epoch, s.home, s.step, t.uses_messages
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
    AND t.name = ANY (%(types)s::text[])
ORDER BY s.type_id, s.shard;
