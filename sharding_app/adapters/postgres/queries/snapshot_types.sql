SELECT id, name, kind, number_of_shards, extractor, hash_version, role, store_mode, registered_at
FROM sharding_type
ORDER BY name;
