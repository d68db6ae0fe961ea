-- The position of an entity that waits, in its journal: a turn under way is waited for.
SELECT p.first_slice FROM sharding_position p
JOIN sharding_projection r ON r.id = p.projection_id
WHERE p.journal = coalesce((
        SELECT h.journal FROM sharding_held h JOIN sharding_type t ON t.id = h.type_id
        WHERE h.projection_id = r.id AND t.name = %(type)s AND h.entity = %(entity)s), '')
    AND r.name = %(name)s AND r.version = %(version)s AND %(slice)s BETWEEN p.first_slice AND p.last_slice
FOR UPDATE OF p;
