-- Takes these shards from their homes, which are dead: a process that was frozen all the while is fenced. A row whose home
-- has changed since it was looked at is left alone.
UPDATE sharding_shard s SET epoch = s.epoch + 1, home = NULL, step = 'stopped', updated_at = now()
FROM unnest(%(shards)s::integer[], %(homes)s::text[]) AS seen (shard, home)
WHERE s.type_id = %(type_id)s AND s.shard = seen.shard AND s.home IS NOT DISTINCT FROM seen.home
RETURNING s.shard, s.epoch;
