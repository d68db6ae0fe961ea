-- The shards that have left this further journal, by its own rows, and where to.
SELECT t.name, s.shard, s.journal
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.journal <> ''
ORDER BY t.name, s.shard;
