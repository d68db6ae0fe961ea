-- Which of these homes are alive: their names.
SELECT n.name
FROM sharding_node n
WHERE n.incarnation = ANY (%(homes)s::text[])
    AND EXISTS (SELECT FROM sharding_locks_v1() held WHERE held.key IN (n.lock_key_1, n.lock_key_2))
ORDER BY n.age;
