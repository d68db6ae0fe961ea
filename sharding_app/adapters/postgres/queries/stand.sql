-- Tries the coordinator's lock, once, and only when no older live candidate is there to take it.
WITH held AS MATERIALIZED (
    SELECT (l.classid::bigint << 32) | l.objid::bigint AS key
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
SELECT CASE
    WHEN me.incarnation IS NULL THEN false
    WHEN EXISTS (
        SELECT FROM sharding_node n
        WHERE n.age < me.age AND n.candidate AND n.state = 'up' AND NOT n.deaf
            AND n.lock_key_1 IN (SELECT key FROM held) AND n.lock_key_2 IN (SELECT key FROM held)
    ) THEN false
    ELSE pg_try_advisory_lock(%(coordinator_key)s::bigint)
END
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_node me ON me.incarnation = %(incarnation)s;
