-- Whose sessions count. Names of sessions and keys of advisory locks are seen by every role that may connect, so a
-- stranger can bear a node's name and take its locks. Only a session that could write our rows counts as one of ours: its
-- role may act as the role that asks, or has the right itself. A role with that right needs no trick to do harm.

CREATE FUNCTION @schema@.sharding_strangers_v1() RETURNS TABLE (pid integer) LANGUAGE sql STABLE AS $strangers$
    WITH session AS MATERIALIZED (
        SELECT a.pid, a.usesysid FROM pg_stat_activity a WHERE a.usesysid IS NOT NULL
    ), stranger AS MATERIALIZED (
        SELECT known.usesysid
        FROM (SELECT DISTINCT s.usesysid FROM session s) known
        WHERE NOT pg_has_role(known.usesysid, (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user), 'MEMBER')
            AND NOT pg_has_role(known.usesysid, (SELECT r.oid FROM pg_roles r WHERE r.rolname = session_user), 'MEMBER')
            AND NOT has_table_privilege(known.usesysid, '@schema@.sharding_node'::regclass, 'UPDATE')
    )
    SELECT s.pid FROM session s JOIN stranger USING (usesysid)
$strangers$;

-- Advisory locks that are held in this database, by their keys. No other statement reads keys out of pg_locks.
CREATE FUNCTION @schema@.sharding_advisory_v1() RETURNS TABLE (key bigint, pid integer, shared boolean) LANGUAGE sql STABLE AS $advisory$
    SELECT (l.classid::bigint << 32) | l.objid::bigint, l.pid, l.mode <> 'ExclusiveLock'
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
$advisory$;

-- Those that sessions of ours hold. A session that is too new to be among the activities read here counts: a node that has
-- just come back must not be taken for dead. A shared lock is a look, and no sign of life.
CREATE FUNCTION @schema@.sharding_locks_v1() RETURNS TABLE (key bigint) LANGUAGE sql STABLE AS $locks$
    WITH stranger AS MATERIALIZED (SELECT s.pid FROM @schema@.sharding_strangers_v1() s)
    SELECT held.key
    FROM @schema@.sharding_advisory_v1() held
    WHERE NOT held.shared AND NOT EXISTS (SELECT FROM stranger s WHERE s.pid = held.pid)
$locks$;
