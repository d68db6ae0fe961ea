-- The shards in which messages stand that were stored from outside for an entity of a further journal, and their homes.
SELECT s.shard, s.home
FROM sharding_shard s
WHERE s.type_id = %(type_id)s AND s.shard IN (
    SELECT m.shard FROM sharding_message m
    WHERE m.type_id = %(type_id)s AND m.entity = %(entity)s
        AND (%(shard)s::integer IS NULL
            OR m.shard = ANY (%(shard)s::integer || sharding_former_shards_v1(%(type_id)s, %(entity)s))))
ORDER BY s.shard;
