SELECT id, name, kind, number_of_shards, extractor, hash_version, role, store_mode,
    shards_wanted, groups_resized, shards_revision, declared_shards, closings
FROM sharding_type
ORDER BY name;
