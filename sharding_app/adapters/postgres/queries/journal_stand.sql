-- Takes shards from their former homes in a further journal, as the coordinator's rows say: nothing is written there at an
-- earlier epoch any more. An append under way holds the row, and is waited for. Those come back that stand so; a later epoch
-- has the others. The step is 'stopped', or 'copied' in the target of a move, where copied rows are no news for projections.
INSERT INTO sharding_shard AS s (type_id, shard, epoch, home, step, followed)
SELECT t.id, wanted.shard, wanted.epoch, NULL, %(step)s, t.followed
FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS wanted (shard, epoch)
JOIN sharding_type t ON t.id = %(type_id)s
ORDER BY wanted.shard
ON CONFLICT (type_id, shard) DO UPDATE SET
    epoch = EXCLUDED.epoch, home = NULL, step = EXCLUDED.step, updated_at = clock_timestamp(),
    followed = CASE EXCLUDED.step WHEN 'copied' THEN s.followed ELSE EXCLUDED.followed END
    WHERE s.epoch < EXCLUDED.epoch OR (s.epoch = EXCLUDED.epoch AND s.home IS NULL)
RETURNING s.shard;
