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
    PERFORM @schema@.sharding_bury_v1(my_term, dead);
    RETURN true;
END
$bury$;
