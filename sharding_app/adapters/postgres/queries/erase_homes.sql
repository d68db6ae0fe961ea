-- Which of these homes are alive: their names.
SELECT n.name
FROM sharding_node n
WHERE n.incarnation = ANY (%(homes)s::text[]) AND EXISTS (
    SELECT FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND (l.classid::bigint << 32) | l.objid::bigint IN (n.lock_key_1, n.lock_key_2))
ORDER BY n.age;
