-- A page of a type's remembered ids, after a key and up to an entity. Their key has the shard before the entity.
SELECT r.entity
FROM sharding_remembered r
WHERE r.type_id = %(type_id)s AND (r.shard, r.entity) > (%(shard)s, %(entity)s) AND r.shard <= %(last_shard)s
    AND r.entity >= %(from)s AND r.entity <= %(upto)s
ORDER BY r.shard, r.entity
LIMIT %(limit)s;
