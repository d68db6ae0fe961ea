-- Every node, with how many of its two locks are held now; one row comes back without any node too.
WITH held AS MATERIALIZED (SELECT key FROM sharding_locks_v1())
SELECT
    @server@,
    n.incarnation, n.name, n.host, n.pid, n.age, n.state, n.roles, n.app_version, n.candidate, n.types, n.deaf,
    n.server_started, n.server_timeline, n.server_system, n.backends, n.asked,
    (SELECT count(DISTINCT held.key) FROM held WHERE held.key IN (n.lock_key_1, n.lock_key_2)),
    n.wire, n.addresses
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_node n ON true
ORDER BY n.age;
