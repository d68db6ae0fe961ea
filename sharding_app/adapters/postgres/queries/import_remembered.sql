-- Remembered ids at the present epochs of their shards.
WITH stored AS (
    INSERT INTO sharding_remembered (type_id, shard, entity, epoch)
    SELECT s.type_id, g.shard, g.entity, s.epoch
    FROM (SELECT unnest(%(entities)s::text[]) AS entity, unnest(%(shards)s::integer[]) AS shard) g
    JOIN sharding_shard s ON s.type_id = %(type_id)s AND s.shard = g.shard
    ORDER BY g.shard, g.entity
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM stored), NULL;
