-- Deletes events of entities, from one number to another.
DELETE FROM sharding_event e
USING unnest(%(entities)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS range (entity, first, last)
WHERE e.type_id = %(type_id)s AND e.entity = range.entity AND e.seq BETWEEN range.first AND range.last;
