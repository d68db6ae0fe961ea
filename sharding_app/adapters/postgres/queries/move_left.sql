-- Which of some shards this further journal says to have left.
SELECT s.shard FROM sharding_shard s
WHERE s.type_id = %(type_id)s AND s.shard = ANY (%(shards)s::integer[]) AND s.journal <> '' ORDER BY s.shard;
