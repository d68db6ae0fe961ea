-- Opens closed shards where they are. The type's row comes first, as in move_close.sql.
WITH counted AS MATERIALIZED (
    UPDATE sharding_type t SET closings = t.closings + 1
    WHERE t.id = %(type_id)s AND EXISTS (
        SELECT FROM sharding_move m
        WHERE m.type_id = t.id AND m.shard = ANY (%(shards)s::integer[]) AND m.step = 'closed')
    RETURNING t.id
), opened AS (
    UPDATE sharding_move m SET step = 'copying', closed_until = NULL, at = clock_timestamp()
    FROM counted
    WHERE m.type_id = counted.id AND m.shard = ANY (%(shards)s::integer[]) AND m.step = 'closed'
    RETURNING m.shard
)
SELECT shard FROM opened ORDER BY shard;
