-- The living nodes that host this type: their names.
SELECT n.name
FROM sharding_node n
WHERE n.types ? %(type)s
    AND EXISTS (SELECT FROM sharding_locks_v1() held WHERE held.key IN (n.lock_key_1, n.lock_key_2))
ORDER BY n.age;
