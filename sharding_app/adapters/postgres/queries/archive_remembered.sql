-- Which of these entities are remembered.
SELECT r.entity
FROM unnest(%(entities)s::text[], %(shards)s::integer[]) AS wanted (entity, shard)
JOIN sharding_remembered r ON r.type_id = %(type_id)s AND r.shard = wanted.shard AND r.entity = wanted.entity;
