-- Gives messages, timers and marks other shards. A shard without a row gets one, so that a home is looked for at once.
WITH marks AS (
    UPDATE sharding_taken m SET shard = given.shard
    FROM unnest(%(ids)s::text[], %(shards)s::integer[]) AS given (id, shard)
    WHERE m.id = given.id
), placed AS (
    UPDATE sharding_message m SET shard = given.shard
    FROM unnest(%(ids)s::text[], %(shards)s::integer[]) AS given (id, shard)
    WHERE m.id = given.id
    RETURNING m.type_id, m.shard
)
INSERT INTO sharding_shard (type_id, shard, epoch, step, followed)
SELECT DISTINCT placed.type_id, placed.shard, 1, 'stopped', t.followed
FROM placed
JOIN sharding_type t ON t.id = placed.type_id
ON CONFLICT DO NOTHING;
