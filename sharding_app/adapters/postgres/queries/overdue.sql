-- Shards in which something should have gone out: the news that it was stored from outside may be lost. Those of this home,
-- and those that never had one. One look at each along the index: the time stands still in a statement, so it bounds the look.
-- As in due.sql, rows of a shard that lies in another journal count only if they are from outside.
WITH shard AS (
    SELECT s.type_id, s.shard, s.epoch, s.journal = '' AS here
    FROM sharding_type t
    JOIN sharding_shard s ON s.type_id = t.id AND s.home = %(home)s
    WHERE t.uses_messages
    UNION ALL
    SELECT t.id, place.shard, 0, true
    FROM sharding_type t
    CROSS JOIN LATERAL generate_series(0, greatest(t.number_of_shards, t.shards_wanted) - 1) AS place (shard)
    WHERE t.uses_messages
        AND place.shard < sharding_modulus_v1(place.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
        AND NOT EXISTS (SELECT FROM sharding_shard s WHERE s.type_id = t.id AND s.shard = place.shard)
)
SELECT shard.type_id, shard.shard, shard.epoch
FROM shard
CROSS JOIN LATERAL (
    SELECT FROM sharding_message m
    WHERE m.type_id = shard.type_id AND m.shard = shard.shard AND NOT m.parked
        AND m.due <= statement_timestamp() - %(late)s * interval '1 second' AND (shard.here OR m.epoch IS NULL)
    LIMIT 1
) late
ORDER BY shard.type_id, shard.shard
LIMIT %(limit)s;
