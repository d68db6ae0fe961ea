-- Rows of shards that lie in further journals are copies that moves have made, but for messages from outside.
WITH chosen AS (
    SELECT id FROM sharding_type WHERE %(types)s::text[] IS NULL OR name = ANY (%(types)s::text[])
), elsewhere AS (
    SELECT type_id, shard FROM sharding_shard WHERE type_id IN (SELECT id FROM chosen) AND journal <> ''
)
SELECT
    (SELECT count(*) FROM sharding_shard WHERE type_id IN (SELECT id FROM chosen) AND home IS NOT NULL),
    (SELECT count(*) FROM sharding_remembered r
        WHERE r.type_id IN (SELECT id FROM chosen)
            AND NOT EXISTS (SELECT FROM elsewhere e WHERE e.type_id = r.type_id AND e.shard = r.shard)),
    (SELECT count(*) FROM sharding_lease WHERE %(types)s::text[] IS NULL),
    (SELECT count(*) FROM sharding_node WHERE %(types)s::text[] IS NULL),
    (SELECT count(*) FROM sharding_location WHERE type_id IN (SELECT id FROM chosen)),
    (SELECT count(*) FROM sharding_message m
        WHERE m.type_id IN (SELECT id FROM chosen) AND (m.epoch IS NULL
            OR NOT EXISTS (SELECT FROM elsewhere e WHERE e.type_id = m.type_id AND e.shard = m.shard)));
