-- Whether a projection has handled an entity's event: its transaction is known by its last 32 bits (see trim_events.sql).
-- An event that is not in the journal any more was seen before it was trimmed.
SELECT
    p.fill_type IS NULL AND coalesce(
        pg_visible_in_snapshot(
            (present.xid - ((present.xid - e.xmin::text::bigint) & 4294967295))::text::xid8, p.position), true)
        AND (h.next IS NULL OR h.until IS NOT NULL OR h.next > %(number)s),
    coalesce(h.parked, false) AND h.next <= %(number)s, coalesce(h.error, ''), r.paused
FROM sharding_projection r
JOIN sharding_position p ON p.projection_id = r.id AND %(slice)s BETWEEN p.first_slice AND p.last_slice
CROSS JOIN (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS xid) present
LEFT JOIN sharding_type t ON t.name = %(type)s
LEFT JOIN sharding_event e ON e.type_id = t.id AND e.entity = %(entity)s AND e.seq = %(number)s
LEFT JOIN sharding_held h ON h.projection_id = r.id AND h.type_id = t.id AND h.entity = %(entity)s
WHERE r.name = %(name)s AND r.version = %(version)s;
