-- Every node, with how many of its two locks are held now.
WITH held AS MATERIALIZED (SELECT key FROM sharding_locks_v1())
SELECT n.incarnation, n.name, n.host, n.pid, n.age, n.state, n.roles::text, n.app_version, n.candidate, n.types::text, n.deaf,
    n.asked, n.wire::text, n.joined_at,
    (SELECT count(DISTINCT held.key) FROM held WHERE held.key IN (n.lock_key_1, n.lock_key_2)),
    n.addresses::text
FROM sharding_node n
ORDER BY n.age;
