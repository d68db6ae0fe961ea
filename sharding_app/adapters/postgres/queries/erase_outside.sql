-- Deletes messages that were stored from outside for an entity that lies in a further journal. As in erase.sql the shard's row is
-- locked and compared here.
WITH mine AS MATERIALIZED (
    SELECT m.id FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.entity = %(entity)s
        AND m.shard = ANY (%(shards)s::integer[] || sharding_former_shards_v1(%(type_id)s, %(entity)s))
    ORDER BY m.id
    FOR UPDATE
), held AS MATERIALIZED (
    SELECT s.shard
    FROM sharding_shard s
    WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s AND s.epoch = %(epoch)s AND (SELECT count(*) FROM mine) >= 0
    FOR SHARE
), messages AS (
    DELETE FROM sharding_message m USING mine, held WHERE m.id = mine.id RETURNING 1
)
SELECT 0, 0, 0, (SELECT count(*) FROM messages), true FROM held;
