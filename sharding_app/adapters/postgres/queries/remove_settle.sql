-- Settles types whose messages were given other shards: a node with other settings would look for them in vain.
UPDATE sharding_type t SET
    kind = given.kind, number_of_shards = given.number_of_shards, extractor = given.extractor,
    hash_version = given.hash_version, role = given.role, store_mode = given.store_mode, changeable = false,
    shards_wanted = 0, groups_resized = 0, shards_revision = t.shards_revision + 1, declared_shards = '{}'
FROM unnest(
    %(names)s::text[], %(kinds)s::text[], %(numbers)s::integer[], %(extractors)s::text[], %(hashes)s::text[],
    %(roles)s::text[], %(modes)s::text[])
    AS given (name, kind, number_of_shards, extractor, hash_version, role, store_mode)
WHERE t.name = given.name;
