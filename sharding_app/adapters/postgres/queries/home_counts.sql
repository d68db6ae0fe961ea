-- How many shards of the present configuration each node has.
SELECT s.home, count(*)
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < t.number_of_shards AND s.home IS NOT NULL
GROUP BY s.home;
