-- What these positions have not seen, in the order of transactions, as far as the limits go. One statement sees one snapshot:
-- the first row has it, with the transaction at which the page ends, if it does, and the number of rows that were read.
-- Rows of one transaction stay together. Numbers of transactions are compared as bigint where PostgreSQL 14 has no function.
WITH mine AS MATERIALIZED (
    SELECT p.first_slice, p.last_slice, p.position::pg_snapshot AS position
    FROM unnest(%(firsts)s::smallint[], %(lasts)s::smallint[], %(positions)s::text[]) AS p (first_slice, last_slice, position)
), since AS MATERIALIZED (
    SELECT min(pg_snapshot_xmin(m.position)::text::bigint)::text::xid8 AS xid FROM mine m
), read AS MATERIALIZED (
    SELECT found.*
    FROM unnest(%(types)s::integer[]) AS wanted (type_id)
    CROSS JOIN LATERAL (
        SELECT c.type_id, c.xid, c.events, c.entities, c.slices, c.firsts, c.lasts, c.erased
        FROM sharding_change c
        WHERE c.type_id = wanted.type_id AND c.xid >= (SELECT xid FROM since)
            AND EXISTS (SELECT FROM mine m WHERE NOT pg_visible_in_snapshot(c.xid, m.position))
        ORDER BY c.xid
        LIMIT %(rows)s + 1
    ) found
    ORDER BY found.xid
    LIMIT %(rows)s + 1
), counted AS MATERIALIZED (
    SELECT read.*, read.xid::text::bigint AS number,
        sum(read.events) OVER (ORDER BY read.xid) - sum(read.events) OVER (PARTITION BY read.xid) AS earlier,
        count(*) OVER () AS count, last_value(read.xid) OVER (ORDER BY read.xid ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS newest
    FROM read
), kept AS MATERIALIZED (
    SELECT c.*, c.earlier < %(limit)s AND (c.count <= %(rows)s OR c.xid < c.newest) AS goes FROM counted c
)
SELECT (SELECT min(k.number) FROM kept k WHERE NOT k.goes) AS number, NULL::integer AS type_id,
    pg_current_snapshot()::text AS entity, NULL::smallint AS slice, (SELECT count(*) FROM kept) AS first,
    (SELECT count(*) FROM kept k WHERE k.goes) AS last,
    NULL::boolean AS erased
UNION ALL
SELECT k.number, k.type_id, e.entity, e.slice, e.first, e.last, k.erased
FROM kept k
CROSS JOIN LATERAL unnest(k.entities, k.slices, k.firsts, k.lasts) AS e (entity, slice, first, last)
JOIN mine m ON e.slice BETWEEN m.first_slice AND m.last_slice
WHERE k.goes AND e.slice BETWEEN %(first)s AND %(last)s AND NOT pg_visible_in_snapshot(k.xid, m.position);
