-- Erasures that the positions have not seen, as of now: a new statement sees later ones than that which has read the changes.
SELECT c.xid::text::bigint, c.type_id, e.entity, e.slice, e.first, e.last, true
FROM sharding_change c
CROSS JOIN LATERAL unnest(c.entities, c.slices, c.firsts, c.lasts) AS e (entity, slice, first, last)
JOIN sharding_position p ON p.projection_id = %(id)s AND e.slice BETWEEN p.first_slice AND p.last_slice
WHERE c.type_id = ANY (%(types)s::integer[]) AND c.erased
    AND c.xid >= (
        SELECT min(pg_snapshot_xmin(o.position)::text::bigint)::text::xid8
        FROM sharding_position o WHERE o.projection_id = %(id)s AND o.first_slice <= %(last)s AND o.last_slice >= %(first)s)
    AND e.slice BETWEEN %(first)s AND %(last)s AND NOT pg_visible_in_snapshot(c.xid, p.position);
