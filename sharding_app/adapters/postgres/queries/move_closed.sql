SELECT t.name, m.shard, m.target
FROM sharding_move m JOIN sharding_type t ON t.id = m.type_id
WHERE m.step = 'closed'
ORDER BY t.name, m.shard;
