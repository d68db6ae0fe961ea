-- Shards in which something should have gone out: the news that it was stored from outside may be lost. Those of this home,
-- and those that never had one. The time stands still in a statement, so it bounds what is read of the index.
SELECT s.type_id, s.shard, s.epoch
FROM sharding_type t
JOIN sharding_shard s ON s.type_id = t.id AND s.home = %(home)s
WHERE t.sets_in_motion AND EXISTS (
    SELECT FROM sharding_message m
    WHERE m.type_id = s.type_id AND m.shard = s.shard AND NOT m.parked
        AND m.due <= statement_timestamp() - %(late)s * interval '1 second')
UNION ALL
SELECT t.id, place.shard, 0
FROM sharding_type t
CROSS JOIN LATERAL generate_series(0, t.number_of_shards - 1) AS place (shard)
WHERE t.sets_in_motion
    AND NOT EXISTS (SELECT FROM sharding_shard s WHERE s.type_id = t.id AND s.shard = place.shard)
    AND EXISTS (
        SELECT FROM sharding_message m
        WHERE m.type_id = t.id AND m.shard = place.shard AND NOT m.parked
            AND m.due <= statement_timestamp() - %(late)s * interval '1 second')
ORDER BY type_id, shard
LIMIT %(limit)s;
