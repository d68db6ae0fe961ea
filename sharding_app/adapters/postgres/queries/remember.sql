-- The fence trigger judges the epochs.
INSERT INTO sharding_remembered (type_id, shard, entity, epoch)
SELECT * FROM unnest(%(types)s::integer[], %(shards)s::integer[], %(entities)s::text[], %(epochs)s::bigint[])
ON CONFLICT (type_id, shard, entity) DO UPDATE SET epoch = EXCLUDED.epoch;
