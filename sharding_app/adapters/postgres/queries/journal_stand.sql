-- Takes shards from their former homes in a further journal, as the coordinator's rows say: nothing is written there at an
-- earlier epoch any more. An append under way holds the row, and is waited for. Those come back that stand so; a later epoch
-- has the others.
WITH kind AS (
    INSERT INTO sharding_type (id, name, kind, number_of_shards, extractor, hash_version, role, store_mode)
    VALUES (%(type_id)s, %(type)s, '', 1, '', '', '', '')
    ON CONFLICT DO NOTHING
)
INSERT INTO sharding_shard AS s (type_id, shard, epoch, home, step, followed)
SELECT %(type_id)s, wanted.shard, wanted.epoch, NULL, 'stopped',
    COALESCE((SELECT t.followed FROM sharding_type t WHERE t.id = %(type_id)s), false)
FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS wanted (shard, epoch)
ORDER BY wanted.shard
ON CONFLICT (type_id, shard) DO UPDATE SET
    epoch = EXCLUDED.epoch, home = NULL, step = 'stopped', updated_at = clock_timestamp()
    WHERE s.epoch < EXCLUDED.epoch OR (s.epoch = EXCLUDED.epoch AND s.home IS NULL)
RETURNING s.shard;
