-- In a further journal: whether a position has passed an entity's event, and all erasures of the entity (projection_seen.sql).
SELECT
    CASE
        WHEN e.seq IS NULL THEN %(number)s <= greatest(
            (SELECT n.seq FROM sharding_event n
                WHERE n.type_id = t.id AND n.entity = %(entity)s ORDER BY n.seq DESC LIMIT 1),
            (SELECT n.seq FROM sharding_snapshot n
                WHERE n.type_id = t.id AND n.entity = %(entity)s ORDER BY n.seq DESC LIMIT 1),
            0)
        ELSE (pg_visible_in_snapshot(own.xid, p.position)
            OR NOT EXISTS (SELECT FROM sharding_change c WHERE c.type_id = t.id AND c.xid = own.xid)) AND NOT EXISTS (
            SELECT FROM sharding_change c
            WHERE c.type_id = t.id AND c.xid >= pg_snapshot_xmin(p.position) AND c.xid <= own.xid
                AND NOT pg_visible_in_snapshot(c.xid, p.position) AND %(entity)s = ANY (c.entities))
        END
    AND NOT EXISTS (
        SELECT FROM sharding_change c
        WHERE c.type_id = t.id AND c.erased AND c.xid >= pg_snapshot_xmin(p.position)
            AND NOT pg_visible_in_snapshot(c.xid, p.position) AND %(entity)s = ANY (c.entities))
FROM (SELECT %(position)s::pg_snapshot AS position) p
CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid) present
LEFT JOIN sharding_type t ON t.name = %(type)s
LEFT JOIN sharding_event e ON e.type_id = t.id AND e.entity = %(entity)s AND e.seq = %(number)s
CROSS JOIN LATERAL (
    SELECT (present.xid - ((present.xid - e.xmin::text::bigint) & 4294967295))::text::xid8 AS xid
) own;
