-- Shards of one type, of the present configuration, from a number on.
SELECT t.name, s.shard, s.epoch, s.home, s.step, s.journal
FROM sharding_type t
JOIN sharding_shard s ON s.type_id = t.id AND s.shard < CASE WHEN t.workers > 0 THEN t.workers ELSE sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized) END
WHERE t.id = %(type_id)s AND s.shard >= %(first)s AND s.shard < %(beyond)s
ORDER BY s.shard;
