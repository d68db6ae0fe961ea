-- As shards.sql, of one type and by number.
SELECT t.name, s.shard, s.epoch, s.home, s.step, t.uses_messages,
    t.number_of_shards, t.shards_wanted, t.groups_resized, t.shards_revision, s.journal
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
    AND t.name = %(type)s AND s.shard = ANY (%(shards)s::integer[])
ORDER BY s.type_id, s.shard;
