SELECT h.type_id, h.entity, h.slice, h.next, h.until::text::bigint, h.failures, 0.0::float8, h.parked, h.error
FROM unnest(%(types)s::integer[], %(entities)s::text[]) AS wanted (type_id, entity)
JOIN sharding_held h ON h.projection_id = %(id)s AND h.type_id = wanted.type_id AND h.entity = wanted.entity;
