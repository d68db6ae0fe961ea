SELECT t.name, h.entity, h.next, h.failures, h.parked, h.error, h.retry_at, h.at, h.journal
FROM sharding_held h
JOIN sharding_projection r ON r.id = h.projection_id
JOIN sharding_type t ON t.id = h.type_id
WHERE r.name = %(name)s AND r.version = %(version)s AND h.until IS NULL
ORDER BY h.parked DESC, h.at, h.type_id, h.entity
LIMIT %(limit)s;
