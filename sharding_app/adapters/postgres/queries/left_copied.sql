-- The shards of which a journal has a copy alone.
SELECT m.type_id, m.shard
FROM sharding_move m
JOIN sharding_shard s ON s.type_id = m.type_id AND s.shard = m.shard
WHERE %(journal)s IN (m.source, m.target) AND s.journal <> %(journal)s
ORDER BY m.type_id, m.shard;
