-- Erasures that these positions have not seen, as of now: a new statement sees later ones than that which has read the changes.
WITH mine AS MATERIALIZED (
    SELECT p.first_slice, p.last_slice, p.position::pg_snapshot AS position
    FROM unnest(%(firsts)s::smallint[], %(lasts)s::smallint[], %(positions)s::text[]) AS p (first_slice, last_slice, position)
)
SELECT c.xid::text::bigint, c.type_id, e.entity, e.slice, e.first, e.last, true
FROM sharding_change c
CROSS JOIN LATERAL unnest(c.entities, c.slices, c.firsts, c.lasts) AS e (entity, slice, first, last)
JOIN mine p ON e.slice BETWEEN p.first_slice AND p.last_slice
WHERE c.type_id = ANY (%(types)s::integer[]) AND c.erased
    AND c.xid >= (SELECT min(pg_snapshot_xmin(o.position)::text::bigint)::text::xid8 FROM mine o)
    AND e.slice BETWEEN %(first)s AND %(last)s AND NOT pg_visible_in_snapshot(c.xid, p.position);
