-- Where a projection stands with an entity in a further journal.
SELECT p.fill_type IS NULL, p.position::text, h.next, h.until IS NOT NULL, coalesce(h.parked, false),
    coalesce(h.error, ''), r.paused
FROM sharding_projection r
JOIN sharding_position p ON p.projection_id = r.id AND p.journal = %(journal)s AND %(slice)s BETWEEN p.first_slice AND p.last_slice
LEFT JOIN sharding_type t ON t.name = %(type)s
LEFT JOIN sharding_held h ON h.projection_id = r.id AND h.type_id = t.id AND h.entity = %(entity)s
WHERE r.name = %(name)s AND r.version = %(version)s;
