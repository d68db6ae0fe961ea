-- Snapshots, as in import_events.sql.
WITH given AS MATERIALIZED (
    SELECT unnest(%(entities)s::text[]) AS entity, unnest(%(seqs)s::bigint[]) AS seq, unnest(%(shards)s::integer[]) AS shard,
        unnest(%(states)s::text[]) AS state, unnest(%(ats)s::timestamptz[]) AS at
), stored AS (
    INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state, at)
    SELECT s.type_id, g.entity, g.seq, g.shard, s.epoch, g.state::json, g.at
    FROM given g JOIN sharding_shard s ON s.type_id = %(type_id)s AND s.shard = g.shard
    ORDER BY g.entity, g.seq
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM stored), (
    SELECT format('the snapshot after event %%s of %%L is another one there', g.seq, g.entity)
    FROM given g JOIN sharding_snapshot p ON p.type_id = %(type_id)s AND p.entity = g.entity AND p.seq = g.seq
    WHERE p.state::text IS DISTINCT FROM g.state
    ORDER BY g.entity, g.seq LIMIT 1);
