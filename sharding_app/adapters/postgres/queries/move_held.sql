SELECT r.name, r.version, h.entity, h.parked
FROM sharding_held h JOIN sharding_projection r ON r.id = h.projection_id
WHERE h.type_id = %(type_id)s AND h.journal = %(source)s
ORDER BY h.projection_id, h.entity;
