-- The timers of an entity whose keys begin like that, without parked ones, and the server's time.
SELECT clock_timestamp(), m.key, m.every
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_message m ON m.type_id = %(type_id)s AND m.entity = %(entity)s AND m.key IS NOT NULL
    AND starts_with(m.key, %(prefix)s) AND NOT m.parked;
