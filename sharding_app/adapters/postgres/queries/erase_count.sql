-- What is stored of the entity. Nothing is locked.
SELECT
    (SELECT count(*) FROM sharding_event e WHERE e.type_id = t.id AND e.entity = %(entity)s),
    (SELECT count(*) FROM sharding_snapshot p WHERE p.type_id = t.id AND p.entity = %(entity)s),
    (SELECT count(*) FROM sharding_remembered r WHERE r.type_id = t.id AND r.entity = %(entity)s),
    (SELECT count(*) FROM sharding_message m WHERE m.type_id = t.id AND m.entity = %(entity)s)
FROM sharding_type t
WHERE t.name = %(type)s;
