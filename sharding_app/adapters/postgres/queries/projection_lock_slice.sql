-- The position of a slice: a turn under way is waited for.
SELECT p.first_slice FROM sharding_position p
JOIN sharding_projection r ON r.id = p.projection_id
WHERE r.name = %(name)s AND r.version = %(version)s AND %(slice)s BETWEEN p.first_slice AND p.last_slice
FOR UPDATE OF p;
