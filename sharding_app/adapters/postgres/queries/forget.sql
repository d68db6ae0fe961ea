-- A delete fires no fence: the shard rows are locked and compared here. What a stale home wants forgotten stays.
WITH wanted AS (
    SELECT * FROM unnest(%(types)s::integer[], %(shards)s::integer[], %(entities)s::text[], %(epochs)s::bigint[])
        AS each (type_id, shard, entity, epoch)
), held AS (
    SELECT s.type_id, s.shard, s.epoch
    FROM sharding_shard s
    WHERE (s.type_id, s.shard, s.epoch) IN (SELECT type_id, shard, epoch FROM wanted)
    ORDER BY s.type_id, s.shard
    FOR SHARE
)
DELETE FROM sharding_remembered r
USING wanted, held
WHERE held.type_id = wanted.type_id AND held.shard = wanted.shard AND held.epoch = wanted.epoch
    AND r.type_id = wanted.type_id AND r.shard = wanted.shard AND r.entity = wanted.entity;
