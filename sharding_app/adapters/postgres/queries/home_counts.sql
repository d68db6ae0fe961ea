-- How many shards of the present configuration each node has.
SELECT s.home, count(*)
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized) AND s.home IS NOT NULL
GROUP BY s.home;
