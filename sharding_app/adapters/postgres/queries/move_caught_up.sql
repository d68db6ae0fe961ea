-- Entities that have caught up after a failure, and move: the positions have passed all of their changes.
DELETE FROM sharding_held h
WHERE h.type_id = %(type_id)s AND h.journal = %(source)s AND h.entity = ANY (%(entities)s::text[]) AND h.until IS NOT NULL;
