-- The numbers of remembered ids, and of messages and timers, of some types in a further journal, without those of shards of
-- which it has a copy alone.
WITH copied AS MATERIALIZED (
    SELECT copied.* FROM unnest(%(copied_types)s::integer[], %(copied_shards)s::integer[]) AS copied (type_id, shard)
)
SELECT
    (SELECT count(*) FROM sharding_remembered r
        WHERE r.type_id = ANY (%(type_ids)s::integer[])
            AND NOT EXISTS (SELECT FROM copied c WHERE c.type_id = r.type_id AND c.shard = r.shard)),
    (SELECT count(*) FROM sharding_message m
        WHERE m.type_id = ANY (%(type_ids)s::integer[])
            AND NOT EXISTS (SELECT FROM copied c WHERE c.type_id = m.type_id AND c.shard = m.shard));
