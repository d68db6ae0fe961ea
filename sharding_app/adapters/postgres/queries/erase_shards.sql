-- The shards that stand in the rows of an entity.
SELECT e.shard FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
UNION SELECT p.shard FROM sharding_snapshot p WHERE p.type_id = %(type_id)s AND p.entity = %(entity)s;
