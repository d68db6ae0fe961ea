-- The configurations that bind: not those of types whose data was removed, which the next node may change.
SELECT name, kind, number_of_shards, extractor, hash_version, role, store_mode,
    shards_wanted, groups_resized, shards_revision, declared_shards
FROM sharding_type
WHERE NOT changeable
ORDER BY name;
