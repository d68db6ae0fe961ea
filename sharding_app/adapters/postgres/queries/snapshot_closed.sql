-- Shards of one type that are closed for a move to another journal, from a number on.
SELECT m.shard, m.target
FROM sharding_move m
WHERE m.type_id = %(type_id)s AND m.shard >= %(first)s AND m.shard < %(beyond)s AND m.step = 'closed';
