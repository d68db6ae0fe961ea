-- A page of a type's entities behind one: whether the last event of each is old, its number, how many events there are, and the
-- shard in the last one. For each entity three looks at the key, however many events lie between.
WITH RECURSIVE page (entity, number) AS (
    (
        SELECT e.entity, 1
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity > %(after)s AND e.entity BETWEEN %(first)s AND %(last)s
        ORDER BY e.entity, e.seq
        LIMIT 1
    )
    UNION ALL
    SELECT next.entity, page.number + 1
    FROM page
    CROSS JOIN LATERAL (
        SELECT e.entity
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity > page.entity AND e.entity <= %(last)s
        ORDER BY e.entity, e.seq
        LIMIT 1
    ) next
    WHERE page.number < %(limit)s
)
SELECT p.entity, newest.at < clock_timestamp() - %(window)s * interval '1 second', newest.seq,
    newest.seq - oldest.seq + 1, newest.shard
FROM page p
CROSS JOIN LATERAL (
    SELECT e.seq, e.at, e.shard FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = p.entity ORDER BY e.seq DESC LIMIT 1) newest
CROSS JOIN LATERAL (
    SELECT e.seq FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = p.entity ORDER BY e.seq LIMIT 1) oldest
ORDER BY p.entity;
