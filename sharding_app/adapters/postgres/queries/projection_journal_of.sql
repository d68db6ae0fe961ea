-- The journal of a shard; no row: it has none yet.
SELECT s.journal FROM sharding_shard s WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s;
