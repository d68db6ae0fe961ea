-- Shards of these types, or of all, that are on their way to another journal, or have left a copy in their former one.
SELECT m.type_id, t.name, m.shard, m.source, m.target, m.step
FROM sharding_move m
JOIN sharding_type t ON t.id = m.type_id
WHERE %(types)s::text[] IS NULL OR t.name = ANY (%(types)s::text[])
ORDER BY m.type_id, m.shard;
