SELECT seq, state::text FROM sharding_snapshot WHERE type_id = %(type_id)s AND entity = %(entity)s
ORDER BY seq DESC LIMIT 1;
