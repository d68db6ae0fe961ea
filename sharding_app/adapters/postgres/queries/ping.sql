SELECT
    @server@,
    c.term, c.incarnation,
    EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
            AND (l.classid::bigint << 32) | l.objid::bigint = %(coordinator_key)s),
    (SELECT n.asked FROM sharding_node n WHERE n.incarnation = %(incarnation)s)
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_coordinator c ON true;
