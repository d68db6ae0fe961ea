-- The shards that lie in this further journal: those that have left it are not among them.
SELECT t.name, s.shard, s.epoch, s.step, t.number_of_shards, t.shards_wanted, t.groups_resized, t.shards_revision
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.journal = '';
