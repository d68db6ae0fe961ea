-- Takes messages of shards out of a further journal that the shards are about to leave: nothing takes effect here any more.
-- Put back by sharding_unstash_v1, if a home takes the shards here after all.
WITH home AS MATERIALIZED (
    SELECT s.shard
    FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS known (shard, epoch)
    JOIN sharding_shard s ON s.type_id = %(type_id)s AND s.shard = known.shard AND s.epoch = known.epoch AND s.home IS NULL
    ORDER BY s.shard
    FOR NO KEY UPDATE OF s
), gone AS (
    DELETE FROM sharding_message m USING home
    WHERE m.type_id = %(type_id)s AND m.shard = home.shard AND m.epoch IS NOT NULL
    RETURNING m.*
), kept AS (
    INSERT INTO sharding_moving_message SELECT gone.* FROM gone
)
SELECT count(*) FROM home;
