-- The shards in which the entity has left anything, and their homes. Nothing is locked.
SELECT s.type_id, s.shard, s.home
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE t.name = %(type)s AND s.shard IN (
    SELECT e.shard FROM sharding_event e WHERE e.type_id = t.id AND e.entity = %(entity)s
    UNION SELECT p.shard FROM sharding_snapshot p WHERE p.type_id = t.id AND p.entity = %(entity)s
    UNION SELECT r.shard FROM sharding_remembered r WHERE r.type_id = t.id AND r.entity = %(entity)s
    UNION SELECT m.shard FROM sharding_message m WHERE m.type_id = t.id AND m.entity = %(entity)s)
ORDER BY s.type_id, s.shard;
