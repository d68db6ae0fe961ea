-- Holds the rows of shards in the journal to which they move, to the end of a piece of the copy: while they are so, its fence
-- writes no changes for projections. A row that is not as the command knows it is missing: the shard lives here by now.
WITH held AS MATERIALIZED (
    SELECT s.type_id, s.shard, s.epoch
    FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS known (shard, epoch)
    JOIN sharding_shard s ON s.type_id = %(type_id)s AND s.shard = known.shard
    WHERE CASE WHEN %(own)s THEN s.journal = %(source)s ELSE s.home IS NULL AND s.epoch = known.epoch END
    ORDER BY s.shard
    FOR NO KEY UPDATE OF s
), silent AS (
    UPDATE sharding_shard s SET followed = false FROM held
    WHERE s.type_id = held.type_id AND s.shard = held.shard AND s.followed
)
SELECT held.shard, held.epoch FROM held ORDER BY held.shard;
