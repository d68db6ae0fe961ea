-- Positions in a further journal as they are committed, and the entities that wait in it, no more than one beyond a limit.
-- Those too that have caught up, while the position is not behind that: events of their numbers are left out until then, so
-- such an entity must not be archived, and begin anew with event 1.
SELECT f.began::text::bigint, p.*, h.*
FROM sharding_following f
CROSS JOIN LATERAL (
    SELECT array_agg(p.first_slice ORDER BY p.first_slice) AS firsts, array_agg(p.last_slice ORDER BY p.first_slice) AS lasts,
        array_agg(p.position::text ORDER BY p.first_slice) AS positions,
        array_agg(p.fill_type ORDER BY p.first_slice) AS fill_types
    FROM sharding_position p
    WHERE p.projection_id = f.projection_id AND p.journal = f.journal
) p
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(h.type_id), '{}') AS types, coalesce(array_agg(h.entity), '{}') AS entities,
        coalesce(array_agg(h.slice), '{}') AS slices, coalesce(array_agg(h.next), '{}') AS nexts
    FROM (
        SELECT h.type_id, h.entity, h.slice, h.next
        FROM sharding_held h
        WHERE h.projection_id = f.projection_id AND h.journal = f.journal
        LIMIT %(most)s + 1
    ) h
) h
WHERE f.projection_id = %(id)s AND f.journal = %(journal)s AND NOT f.lost AND p.firsts IS NOT NULL;
