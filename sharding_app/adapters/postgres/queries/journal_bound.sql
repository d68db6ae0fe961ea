-- Where the next piece ends: the type's first entity, and the one that holds the row after the last of the piece.
SELECT
    (SELECT entity FROM sharding_event WHERE type_id = %(type_id)s ORDER BY entity, seq LIMIT 1),
    (SELECT entity FROM sharding_event WHERE type_id = %(type_id)s
        ORDER BY entity, seq OFFSET %(rows)s LIMIT 1);
