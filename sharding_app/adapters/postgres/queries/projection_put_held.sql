INSERT INTO sharding_held (projection_id, journal, type_id, entity, slice, next, until, failures, retry_at, parked, error)
VALUES (%(id)s, %(journal)s, %(type_id)s, %(entity)s, %(slice)s, %(next)s, %(until)s::text::xid8, %(failures)s,
    clock_timestamp() + %(delay)s * interval '1 second', %(parked)s, %(error)s)
ON CONFLICT (projection_id, type_id, entity) DO UPDATE SET
    next = EXCLUDED.next, until = EXCLUDED.until, failures = EXCLUDED.failures, retry_at = EXCLUDED.retry_at,
    parked = EXCLUDED.parked, error = EXCLUDED.error, at = clock_timestamp();
