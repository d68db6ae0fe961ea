SELECT h.type_id, h.entity, h.slice, h.next, h.until::text::bigint, h.failures, 0.0::float8, h.parked, h.error
FROM sharding_held h
WHERE h.projection_id = %(id)s AND h.journal = %(journal)s AND h.slice BETWEEN %(first)s AND %(last)s AND h.until IS NULL AND NOT h.parked
    AND h.retry_at <= clock_timestamp()
ORDER BY h.retry_at
LIMIT %(limit)s;
