-- In which journal a shard lies; no row: it has never had a home.
SELECT s.journal FROM sharding_shard s WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s;
