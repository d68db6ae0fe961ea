-- The shards have left this further journal: its own rows say so, and only events and snapshots stay behind.
WITH gone AS MATERIALIZED (
    SELECT s.shard, known.elsewhere
    FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[], %(elsewhere)s::text[]) AS known (shard, epoch, elsewhere)
    JOIN sharding_shard s ON s.type_id = %(type_id)s AND s.shard = known.shard AND s.epoch = known.epoch AND s.home IS NULL
    ORDER BY s.shard
    FOR NO KEY UPDATE OF s
), told AS (
    UPDATE sharding_shard s SET journal = gone.elsewhere, updated_at = clock_timestamp()
    FROM gone WHERE s.type_id = %(type_id)s AND s.shard = gone.shard
), remembered AS (
    DELETE FROM sharding_remembered r USING gone WHERE r.type_id = %(type_id)s AND r.shard = gone.shard
), marks AS (
    DELETE FROM sharding_taken t USING gone WHERE t.type_id = %(type_id)s AND t.shard = gone.shard
), messages AS (
    -- Put back by a command that has not heard that its switch was committed, or by a failover.
    DELETE FROM sharding_message m USING gone WHERE m.type_id = %(type_id)s AND m.shard = gone.shard AND m.epoch IS NOT NULL
), stashed AS (
    DELETE FROM sharding_moving_message m USING gone WHERE m.type_id = %(type_id)s AND m.shard = gone.shard
)
SELECT count(*) FROM gone;
