-- The shards that a home has taken in this further journal, and that have not left it, by its own rows.
SELECT t.name, s.shard
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.journal = '' AND s.home IS NOT NULL
ORDER BY t.name, s.shard;
