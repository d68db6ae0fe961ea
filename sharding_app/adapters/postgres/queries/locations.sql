-- No row: the type is not known, or nothing has changed. One row without a shard: nothing was ever said.
SELECT t.locations_change, l.shard, l.node
FROM sharding_type t
LEFT JOIN sharding_location l ON l.type_id = t.id
WHERE t.name = %(type)s AND t.locations_change IS DISTINCT FROM %(known)s::bigint
ORDER BY l.shard;
