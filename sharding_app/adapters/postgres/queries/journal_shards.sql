-- The shards of a type that lie in further journals, with their journals.
SELECT s.shard, s.journal FROM sharding_shard s WHERE s.type_id = %(type_id)s AND s.journal <> '' ORDER BY s.shard;
