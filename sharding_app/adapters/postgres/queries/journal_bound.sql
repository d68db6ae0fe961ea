-- Where the next piece ends: the type's first entity from one on, and the one that holds the row after the last of the
-- piece. Entities before that one are deleted, and their index entries may be left.
SELECT
    (SELECT entity FROM sharding_event WHERE type_id = %(type_id)s AND entity >= %(after)s ORDER BY entity, seq LIMIT 1),
    (SELECT entity FROM sharding_event WHERE type_id = %(type_id)s AND entity >= %(after)s
        ORDER BY entity, seq OFFSET %(rows)s LIMIT 1);
