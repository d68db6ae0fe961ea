-- Makes a type known in a further journal, with the coordinator's numbers of shards.
INSERT INTO sharding_type (
    id, name, kind, number_of_shards, extractor, hash_version, role, store_mode, shards_wanted, groups_resized, shards_revision)
VALUES (%(type_id)s, %(type)s, '', %(number)s, '', '', '', '', %(wanted)s, %(resized)s, %(revision)s)
ON CONFLICT DO NOTHING;
