UPDATE sharding_shard SET epoch = epoch + 1, home = NULL, step = 'stopped', updated_at = now()
WHERE type_id = %(type_id)s;
