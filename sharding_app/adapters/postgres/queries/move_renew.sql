-- The shards that are still closed, for some seconds from now. One that is missing in the answer was opened.
WITH renewed AS (
    UPDATE sharding_move m SET closed_until = clock_timestamp() + make_interval(secs => %(seconds)s)
    WHERE m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]) AND m.step = 'closed'
    RETURNING m.shard
)
SELECT shard FROM renewed ORDER BY shard;
