-- How the entities of a type are divided, and which of its shards lie in further journals.
SELECT t.extractor LIKE 'hash:%%', t.number_of_shards, t.shards_wanted, t.groups_resized, t.shards_revision,
    ARRAY(SELECT s.shard FROM sharding_shard s WHERE s.type_id = t.id AND s.journal <> '' ORDER BY s.shard),
    ARRAY(SELECT s.journal FROM sharding_shard s WHERE s.type_id = t.id AND s.journal <> '' ORDER BY s.shard)
FROM sharding_type t
WHERE t.id = %(type_id)s;
