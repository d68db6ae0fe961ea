-- A worker that begins tries entities again that are parked at an event that their code did not know: it may have the code
-- of a newer release. Each has one attempt, or is parked again.
UPDATE sharding_held h
SET parked = false, failures = greatest(h.failures - 1, 0), retry_at = clock_timestamp()
WHERE h.projection_id = %(id)s AND h.journal = %(journal)s AND h.slice BETWEEN %(first)s AND %(last)s
    AND h.parked AND h.error LIKE 'UnknownEvent%%';
