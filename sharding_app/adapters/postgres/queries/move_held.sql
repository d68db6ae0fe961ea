-- Entities that wait after a failure in the journal that a shard leaves. One that has caught up has a row there until the
-- position has passed that, and waits for nothing.
SELECT r.name, r.version, h.entity, h.parked, h.until IS NOT NULL
FROM sharding_held h JOIN sharding_projection r ON r.id = h.projection_id
WHERE h.type_id = %(type_id)s AND h.journal = %(source)s
ORDER BY h.projection_id, h.entity;
