-- Living nodes whose rows say that they use a journal. None begins to before the end of a transaction that has changed the
-- journal's place.
SELECT n.name
FROM sharding_node n
WHERE n.journals ? %(name)s AND EXISTS (SELECT FROM sharding_locks_v1() held WHERE held.key IN (n.lock_key_1, n.lock_key_2))
ORDER BY n.age;
