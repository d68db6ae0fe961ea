-- Whether a projection has handled an entity's event, and all erasures of the entity. A position of another server, from
-- which this database was restored, says nothing. The event's transaction is known by its last 32 bits (see trim_events.sql). Behind a savepoint that number is of a part of the transaction, which a snapshot
-- does not list: so changes up to it are looked at too, unless all of them ended before the snapshot.
-- An event that is not in the journal, before others that are, was seen before it was trimmed. A row that a move, an import
-- or a new partition has copied is of a transaction without changes: it is known by those of its entity alone.
SELECT
    p.fill_type IS NULL
        AND r.server = (SELECT system_identifier::text FROM pg_control_system())
        AND CASE
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
        AND (h.next IS NULL OR h.until IS NOT NULL OR h.next > %(number)s),
    coalesce(h.parked, false) AND h.next <= %(number)s, coalesce(h.error, ''), r.paused
FROM sharding_projection r
JOIN sharding_position p ON p.projection_id = r.id AND p.journal = '' AND %(slice)s BETWEEN p.first_slice AND p.last_slice
CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid) present
LEFT JOIN sharding_type t ON t.name = %(type)s
LEFT JOIN sharding_event e ON e.type_id = t.id AND e.entity = %(entity)s AND e.seq = %(number)s
LEFT JOIN sharding_held h ON h.projection_id = r.id AND h.type_id = t.id AND h.entity = %(entity)s
CROSS JOIN LATERAL (
    SELECT (present.xid - ((present.xid - e.xmin::text::bigint) & 4294967295))::text::xid8 AS xid
) own
WHERE r.name = %(name)s AND r.version = %(version)s;
