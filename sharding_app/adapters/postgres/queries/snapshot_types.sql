-- A set of workers has one shard for each worker, and room for more.
SELECT id, name, kind, CASE WHEN workers > 0 THEN workers ELSE number_of_shards END, extractor, hash_version, role,
    store_mode, registered_at, workers, workers_wanted, workers_revision,
    shards_wanted, groups_resized, shards_revision
FROM sharding_type
ORDER BY name;
