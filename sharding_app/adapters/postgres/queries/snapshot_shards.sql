-- How many shards of the present configuration are in each step at each home and in each journal, and the highest of
-- their epochs.
SELECT t.name, s.step, s.home, s.journal, count(*), max(s.epoch)
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.shard < CASE WHEN t.workers > 0 THEN t.workers ELSE sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized) END
GROUP BY t.name, s.step, s.home, s.journal
ORDER BY t.name, s.step, s.home, s.journal;
