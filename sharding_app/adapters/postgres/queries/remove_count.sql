WITH chosen AS (
    SELECT id FROM sharding_type WHERE %(types)s::text[] IS NULL OR name = ANY (%(types)s::text[])
)
SELECT
    (SELECT count(*) FROM sharding_shard WHERE type_id IN (SELECT id FROM chosen) AND home IS NOT NULL),
    (SELECT count(*) FROM sharding_remembered WHERE type_id IN (SELECT id FROM chosen)),
    (SELECT count(*) FROM sharding_lease WHERE %(types)s::text[] IS NULL),
    (SELECT count(*) FROM sharding_node WHERE %(types)s::text[] IS NULL),
    (SELECT count(*) FROM sharding_location WHERE type_id IN (SELECT id FROM chosen)),
    (SELECT count(*) FROM sharding_message WHERE type_id IN (SELECT id FROM chosen));
