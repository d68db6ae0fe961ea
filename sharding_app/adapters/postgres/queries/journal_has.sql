-- Whether an entity has a history here.
SELECT EXISTS (SELECT FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s)
    OR EXISTS (SELECT FROM sharding_snapshot s WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s);
