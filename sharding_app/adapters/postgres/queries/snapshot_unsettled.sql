-- Shards of the present configuration that are not at home on a node with a row, and how old their rows are: of types that a
-- node hosts. All shards of the others may be so for years. Of one that is closed for a move to another journal: where it moves
-- to, and since when.
SELECT t.name, s.shard, s.epoch, s.home, s.step, extract(epoch FROM clock_timestamp() - s.updated_at)::float8,
    m.target, extract(epoch FROM clock_timestamp() - m.at)::float8
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
LEFT JOIN sharding_move m ON m.type_id = s.type_id AND m.shard = s.shard AND m.step = 'closed'
WHERE s.shard < CASE WHEN t.workers > 0 THEN t.workers ELSE sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized) END
    AND EXISTS (SELECT FROM sharding_node n WHERE n.types ? t.name)
    AND (s.step <> 'home' OR NOT EXISTS (SELECT FROM sharding_node n WHERE n.incarnation = s.home))
ORDER BY s.type_id, s.shard;
