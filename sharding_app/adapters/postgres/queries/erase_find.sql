-- The shards in which the entity has left anything, and their homes. Nothing is locked.
-- Messages of an entity stand in its present shard, or in one of before a resize: they are deleted before a type may be divided
-- by another rule. Without a shard (the type has an extractor of its own) those of all shards are read.
-- Its present shard is one of them, if it has left anything: its home has what the shards of before a resize have stored.
WITH found AS MATERIALIZED (
    SELECT e.shard FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
    UNION SELECT p.shard FROM sharding_snapshot p WHERE p.type_id = %(type_id)s AND p.entity = %(entity)s
    UNION SELECT r.shard FROM sharding_remembered r WHERE r.type_id = %(type_id)s AND r.entity = %(entity)s
    UNION SELECT m.shard FROM sharding_message m
        WHERE m.type_id = %(type_id)s AND m.entity = %(entity)s
            AND (%(shard)s::integer IS NULL
                OR m.shard = ANY (%(shard)s::integer || sharding_former_shards_v1(%(type_id)s, %(entity)s)))
)
SELECT s.shard, s.home
FROM sharding_shard s
WHERE s.type_id = %(type_id)s
    AND (s.shard IN (SELECT shard FROM found) OR (s.shard = %(shard)s::integer AND EXISTS (SELECT FROM found)))
ORDER BY s.shard;
