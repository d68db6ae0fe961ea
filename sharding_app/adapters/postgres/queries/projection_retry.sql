-- Try an entity again now; with a number, behind that event, if it still is the one at which it waits.
UPDATE sharding_held h
SET parked = false, failures = 0, retry_at = clock_timestamp(), next = h.next + CASE WHEN %(number)s::bigint IS NULL THEN 0 ELSE 1 END
FROM sharding_projection r, sharding_type t
WHERE r.name = %(name)s AND r.version = %(version)s AND h.projection_id = r.id AND t.name = %(type)s AND h.type_id = t.id
    AND h.entity = %(entity)s AND h.until IS NULL AND (%(number)s::bigint IS NULL OR h.next = %(number)s)
RETURNING h.next;
