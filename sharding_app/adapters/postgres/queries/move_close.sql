-- Closes shards that are being copied: they get no home from here on. The type's row comes first and then those of its
-- shards, as in a step of a resize. A decision holds the rows of its shards to the end. So none that is under way gives a
-- closed shard a home afterwards.
WITH counted AS MATERIALIZED (
    UPDATE sharding_type t SET closings = t.closings + 1
    WHERE t.id = %(type_id)s AND EXISTS (
        SELECT FROM sharding_move m
        WHERE m.type_id = t.id AND m.shard = ANY (%(shards)s::integer[]) AND m.step = 'copying')
    RETURNING t.id
), held AS MATERIALIZED (
    SELECT s.shard
    FROM counted JOIN sharding_shard s ON s.type_id = counted.id
    WHERE s.shard = ANY (%(shards)s::integer[])
    ORDER BY s.shard
    FOR NO KEY UPDATE OF s
), closed AS (
    UPDATE sharding_move m
    SET step = 'closed', closed_until = clock_timestamp() + make_interval(secs => %(seconds)s), at = clock_timestamp()
    FROM counted
    WHERE (SELECT count(*) FROM held) >= 0 AND m.type_id = counted.id AND m.shard = ANY (%(shards)s::integer[])
        AND m.step = 'copying'
    RETURNING m.shard
)
SELECT shard FROM closed ORDER BY shard;
