-- In which journals shards lie, as long as they are not closed for a move to another one.
SELECT s.type_id, s.shard, s.journal, t.closings
FROM unnest(%(types)s::integer[], %(shards)s::integer[]) AS asked (type_id, shard)
JOIN sharding_shard s ON s.type_id = asked.type_id AND s.shard = asked.shard
JOIN sharding_type t ON t.id = s.type_id
WHERE NOT EXISTS (
    SELECT FROM sharding_move m WHERE m.type_id = s.type_id AND m.shard = s.shard AND m.step = 'closed');
