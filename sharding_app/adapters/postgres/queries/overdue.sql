-- Shards of this home in which something should have gone out: the news that it was stored from outside may be lost.
SELECT s.type_id, s.shard, s.epoch
FROM sharding_type t
JOIN sharding_shard s ON s.type_id = t.id AND s.home = %(home)s
WHERE t.sets_in_motion AND EXISTS (
    SELECT FROM sharding_message m
    WHERE m.type_id = s.type_id AND m.shard = s.shard AND NOT m.parked
        AND m.due <= clock_timestamp() - %(late)s * interval '1 second')
ORDER BY s.type_id, s.shard
LIMIT %(limit)s;
