-- Whose sessions count. Names of sessions and keys of advisory locks are seen by every role that may connect, so a
-- stranger can bear a node's name and take its locks. Only a session that could write our rows counts as one of ours: its
-- role may act as the role that asks, or has the right itself. Whoever has that right needs no trick to do harm.

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

-- Advisory locks that sessions of ours hold in this database. A session that is too new to be among the activities read
-- here counts: a node that has just come back must not be taken for dead. A shared lock is a look, and no sign of life.
CREATE FUNCTION @schema@.sharding_locks_v1() RETURNS TABLE (key bigint) LANGUAGE sql STABLE AS $locks$
    WITH stranger AS MATERIALIZED (SELECT s.pid FROM @schema@.sharding_strangers_v1() s)
    SELECT (l.classid::bigint << 32) | l.objid::bigint
    FROM pg_locks l
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.mode = 'ExclusiveLock'
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND NOT EXISTS (SELECT FROM stranger s WHERE s.pid = l.pid)
$locks$;

-- As the version before, with three differences. Strangers' locks do not count. A process that may not be ended holds
-- nothing up: the fence refuses what it writes. And processes are ended as the role that has logged in, since under an
-- assumed role (`SET ROLE`) their start times are hidden and ending them is refused.
CREATE FUNCTION @schema@.sharding_bury_v3(my_term bigint, dead text) RETURNS boolean LANGUAGE plpgsql AS $bury$
DECLARE
    key_1 bigint;
    key_2 bigint;
    known jsonb;
    acting_as text := current_setting('role');
    found record;
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    SELECT n.lock_key_1, n.lock_key_2, n.backends INTO key_1, key_2, known
        FROM @schema@.sharding_node n WHERE n.incarnation = dead FOR UPDATE;
    IF EXISTS (SELECT FROM @schema@.sharding_locks_v1() held WHERE held.key IN (key_1, key_2)) THEN
        RETURN false;
    END IF;
    PERFORM set_config('role', 'none', true);
    -- In this database alone: another one on the same server is another cluster.
    FOR found IN
        SELECT a.pid FROM pg_stat_activity a
        WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND (
            starts_with(a.application_name, 'sharding/' || dead || '/')
            OR EXISTS (
                SELECT FROM jsonb_to_recordset(known) AS b (pid integer, started timestamptz)
                WHERE b.pid = a.pid AND b.started = a.backend_start
            )
        )
    LOOP
        BEGIN
            PERFORM pg_terminate_backend(found.pid);
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE DEBUG 'sharding: process % bears the name of % and may not be ended', found.pid, dead;
        END;
    END LOOP;
    PERFORM set_config('role', acting_as, true);
    DELETE FROM @schema@.sharding_node n WHERE n.incarnation = dead;
    RETURN true;
END
$bury$;
