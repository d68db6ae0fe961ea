-- The next ids of a type that begin with a prefix, behind one: one look at the key for each, however many events lie between.
-- The look that finds an id without the prefix, or none, is the last.
WITH RECURSIVE found (entity) AS (
    (
        SELECT e.entity
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity > %(after)s AND e.entity >= %(prefix)s
        ORDER BY e.entity, e.seq
        LIMIT 1
    )
    UNION ALL
    SELECT next.entity
    FROM found
    CROSS JOIN LATERAL (
        SELECT e.entity
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity > found.entity
        ORDER BY e.entity, e.seq
        LIMIT 1
    ) next
    WHERE starts_with(found.entity, %(prefix)s)
)
SELECT entity FROM found WHERE starts_with(entity, %(prefix)s) LIMIT %(limit)s;
