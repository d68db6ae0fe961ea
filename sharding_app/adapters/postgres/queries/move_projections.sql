-- How projections of a type stand in the journals that a shard leaves and enters: name, version, whether a fill is under way,
-- and how far each of its parts has come in the former one. A projection without a position in one of them has no row for it.
SELECT r.name, r.version, p.journal, p.fill_type IS NOT NULL, p.first_slice, p.last_slice, p.position::text
FROM sharding_projection r
LEFT JOIN sharding_position p ON p.projection_id = r.id AND p.journal IN (%(source)s, %(target)s)
WHERE %(type_id)s = ANY (r.type_ids)
ORDER BY r.name, r.version, p.journal, p.first_slice;
