-- Gives closed shards an epoch that none of their homes has had. One that has a home, or is not closed, does not come back.
UPDATE sharding_shard s SET epoch = s.epoch + 1, updated_at = clock_timestamp()
FROM sharding_move m
WHERE s.type_id = %(type_id)s AND s.shard = ANY (%(shards)s::integer[]) AND s.journal = %(source)s AND s.home IS NULL
    AND m.type_id = s.type_id AND m.shard = s.shard AND m.step = 'closed'
RETURNING s.shard, s.epoch;
