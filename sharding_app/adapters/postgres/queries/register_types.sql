-- The first node says what a type is; after data was removed the next one may say something else.
-- Types that are settled are not tried again: each try would use up a number.
INSERT INTO sharding_type AS t (name, kind, number_of_shards, extractor, hash_version, role, store_mode)
SELECT given.*
FROM unnest(
    %(names)s::text[], %(kinds)s::text[], %(numbers)s::integer[], %(extractors)s::text[], %(hashes)s::text[],
    %(roles)s::text[], %(modes)s::text[])
    AS given (name, kind, number_of_shards, extractor, hash_version, role, store_mode)
WHERE NOT EXISTS (SELECT FROM sharding_type known WHERE known.name = given.name AND NOT known.changeable)
ON CONFLICT (name) DO UPDATE SET
    kind = EXCLUDED.kind, number_of_shards = EXCLUDED.number_of_shards, extractor = EXCLUDED.extractor,
    hash_version = EXCLUDED.hash_version, role = EXCLUDED.role, store_mode = EXCLUDED.store_mode, changeable = false,
    shards_wanted = 0, groups_resized = 0, shards_revision = t.shards_revision + 1, declared_shards = '{}'
    WHERE t.changeable;
