-- Holds the rows of shards that have left a copy in a journal, and lie in another one: none of them moves back meanwhile.
SELECT m.shard
FROM sharding_move m
JOIN sharding_shard s ON s.type_id = m.type_id AND s.shard = m.shard
WHERE m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]) AND m.source = %(source)s AND m.step = 'moved'
    AND s.journal <> m.source
ORDER BY m.shard
FOR SHARE OF m;
