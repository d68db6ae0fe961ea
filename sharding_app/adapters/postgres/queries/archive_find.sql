-- The shards in which the entity has left anything, and the one to which its id leads now, with their homes. Nothing is locked.
SELECT s.shard, s.home
FROM sharding_shard s
WHERE s.type_id = %(type_id)s AND s.shard IN (
    SELECT e.shard FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
    UNION SELECT p.shard FROM sharding_snapshot p WHERE p.type_id = %(type_id)s AND p.entity = %(entity)s
    UNION SELECT %(present)s)
ORDER BY s.shard;
