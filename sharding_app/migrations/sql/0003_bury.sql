-- A dead node is buried only while both of its locks are free. The verdict rests on a reading that may be old by now; a
-- node that came back since has taken its locks and then written to its row, so this row's lock puts the two in order.

CREATE FUNCTION @schema@.sharding_bury_v2(my_term bigint, dead text) RETURNS boolean LANGUAGE plpgsql AS $bury$
DECLARE
    key_1 bigint;
    key_2 bigint;
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    SELECT n.lock_key_1, n.lock_key_2 INTO key_1, key_2
        FROM @schema@.sharding_node n WHERE n.incarnation = dead FOR UPDATE;
    IF EXISTS (
        SELECT FROM pg_locks l
        WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
            AND ((l.classid::bigint << 32) | l.objid::bigint) IN (key_1, key_2)
    ) THEN
        RETURN false;
    END IF;
    -- In this database alone: another one on the same server is another cluster.
    PERFORM pg_terminate_backend(a.pid)
        FROM pg_stat_activity a
        WHERE a.pid <> pg_backend_pid() AND a.datname = current_database() AND (
            starts_with(a.application_name, 'sharding/' || dead || '/')
            OR EXISTS (
                SELECT FROM @schema@.sharding_node n, jsonb_to_recordset(n.backends) AS b (pid integer, started timestamptz)
                WHERE n.incarnation = dead AND b.pid = a.pid AND b.started = a.backend_start
            )
        );
    DELETE FROM @schema@.sharding_node n WHERE n.incarnation = dead;
    RETURN true;
END
$bury$;
