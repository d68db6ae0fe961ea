-- The next entities of a type in the order of their ids, one look at the key for each, and the ends of those of the slices.
-- One statement sees one snapshot: the first row has it, and the last entity that was looked at unless that is the last.
WITH RECURSIVE found (entity, number) AS (
    (
        SELECT e.entity, 1
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity > %(after)s
        ORDER BY e.entity, e.seq
        LIMIT 1
    )
    UNION ALL
    SELECT next.entity, found.number + 1
    FROM found
    CROSS JOIN LATERAL (
        SELECT e.entity
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity > found.entity
        ORDER BY e.entity, e.seq
        LIMIT 1
    ) next
    WHERE found.number < %(limit)s
), sliced AS MATERIALIZED (
    SELECT f.entity, f.number, get_byte(sha256(convert_to(f.entity, 'UTF8')), 0) & 127 AS slice FROM found f
)
SELECT (SELECT s.entity FROM sliced s WHERE s.number = %(limit)s) AS entity, NULL::integer AS slice, NULL::bigint AS first,
    NULL::bigint AS last, pg_current_snapshot()::text AS view, NULL::integer AS shard
UNION ALL
SELECT s.entity, s.slice, front.seq, newest.seq, NULL, newest.shard
FROM sliced s
CROSS JOIN LATERAL (
    SELECT e.seq FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = s.entity ORDER BY e.seq LIMIT 1
) front
CROSS JOIN LATERAL (
    SELECT e.seq, e.shard FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = s.entity ORDER BY e.seq DESC LIMIT 1
) newest
WHERE s.slice BETWEEN %(first)s AND %(last)s;
