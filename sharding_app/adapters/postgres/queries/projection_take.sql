-- Lock positions. One that was waited for is seen as it is by then, but all else here as it was before: the last column but one says so.
SELECT p.first_slice, p.last_slice, p.position::text, p.turn, p.events, p.fill_type, p.fill_after, p.fill_until::text::bigint,
    extract(epoch FROM clock_timestamp() - p.at)::float8, r.paused,
    EXISTS (SELECT FROM sharding_held h WHERE h.projection_id = %(id)s AND h.journal = %(journal)s), r.type_ids,
    p.turn IS DISTINCT FROM (
        SELECT o.turn FROM sharding_position o
        WHERE o.projection_id = p.projection_id AND o.journal = p.journal AND o.first_slice = p.first_slice),
    p.secured::text::bigint
FROM sharding_position p
JOIN sharding_projection r ON r.id = p.projection_id
WHERE p.projection_id = %(id)s AND p.journal = %(journal)s AND p.first_slice <= %(last)s AND p.last_slice >= %(first)s
ORDER BY p.first_slice
FOR UPDATE OF p;
