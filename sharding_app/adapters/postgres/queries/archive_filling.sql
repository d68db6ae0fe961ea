-- The projections that still read the type for the first time: they have yet to see its old events.
SELECT DISTINCT r.name
FROM sharding_projection r
JOIN sharding_position o ON o.projection_id = r.id AND o.journal = ''
WHERE %(type_id)s = ANY (r.type_ids) AND o.fill_type IS NOT NULL
ORDER BY r.name;
