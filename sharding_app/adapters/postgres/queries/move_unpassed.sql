-- Entities with changes that a part of a projection has not passed.
SELECT DISTINCT touched.entity
FROM sharding_change c
CROSS JOIN LATERAL unnest(c.entities, c.slices) AS touched (entity, slice)
WHERE c.type_id = %(type_id)s AND c.xid >= pg_snapshot_xmin(%(position)s::pg_snapshot)::text::xid8
    AND NOT pg_visible_in_snapshot(c.xid, %(position)s::pg_snapshot)
    AND touched.slice BETWEEN %(first)s AND %(last)s
LIMIT %(limit)s;
