-- Gives shards to a home, in a journal that is not the cluster's own: the fence reads these rows. An append under way holds
-- the row, and is waited for. Shards are locked in the order of the fence.
WITH kind AS (
    INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)
    VALUES (%(type_id)s, %(type)s, '', 1, '', '', '', '')
    ON CONFLICT DO NOTHING
), taken AS (
    INSERT INTO sharding_shard AS s (type_id, shard, epoch, home, step)
    SELECT %(type_id)s, wanted.shard, wanted.epoch, %(home)s, 'home'
    FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS wanted (shard, epoch)
    ORDER BY wanted.shard
    ON CONFLICT (type_id, shard) DO UPDATE SET
        epoch = EXCLUDED.epoch, home = EXCLUDED.home, step = 'home', updated_at = clock_timestamp()
        WHERE s.epoch < EXCLUDED.epoch OR (s.epoch = EXCLUDED.epoch AND s.home = EXCLUDED.home)
    RETURNING s.shard
)
SELECT COALESCE((SELECT array_agg(shard) FROM taken), '{}'),
    EXISTS (SELECT FROM sharding_type t WHERE t.id = %(type_id)s AND t.uses_messages);
