-- Which of these shards are not at the claimed epoch.
SELECT claim.type_id, claim.shard
FROM unnest(%(types)s::integer[], %(shards)s::integer[], %(epochs)s::bigint[]) AS claim (type_id, shard, epoch)
WHERE NOT EXISTS (
    SELECT FROM sharding_shard s
    WHERE s.type_id = claim.type_id AND s.shard = claim.shard AND s.epoch = claim.epoch);
