-- Locks the entity's shards until the piece is committed: true if all of them are still at the epochs that were raised.
SELECT count(*) = cardinality(%(shards)s::integer[])
FROM (
    SELECT FROM sharding_shard s
    JOIN unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS raised (shard, epoch)
        ON raised.shard = s.shard AND raised.epoch = s.epoch
    WHERE s.type_id = %(type_id)s
    ORDER BY s.shard
    FOR SHARE OF s
) held;
