SELECT seq, shard, epoch, state
FROM sharding_snapshot
WHERE type_id = %(type_id)s AND entity = %(entity)s AND seq < %(before)s
ORDER BY seq DESC
LIMIT 1;
