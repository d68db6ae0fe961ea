-- The first and the last events of an entity.
(SELECT seq, name, version, payload::text FROM sharding_event
    WHERE type_id = %(type_id)s AND entity = %(entity)s ORDER BY seq LIMIT %(number)s)
UNION
(SELECT seq, name, version, payload::text FROM sharding_event
    WHERE type_id = %(type_id)s AND entity = %(entity)s ORDER BY seq DESC LIMIT %(number)s)
ORDER BY seq;
