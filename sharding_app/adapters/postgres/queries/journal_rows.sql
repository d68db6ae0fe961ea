-- The shards that lie in a journal, with their epochs.
SELECT t.name, s.shard, s.epoch
FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id
WHERE s.journal = %(journal)s
ORDER BY t.name, s.shard;
