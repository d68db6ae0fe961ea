SELECT n.name
FROM sharding_node n
WHERE EXISTS (SELECT FROM sharding_locks_v1() held WHERE held.key IN (n.lock_key_1, n.lock_key_2))
    AND (%(types)s::text[] IS NULL OR n.types ?| %(types)s::text[])
ORDER BY n.age;
