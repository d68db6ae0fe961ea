-- The fence: a row may only be written at its shard's current epoch. It binds every writer, ours or not.
-- Shards are locked FOR SHARE in one order, the order in which the coordinator locks them: no deadlock. An epoch that
-- is being raised is waited for, and judged as it is afterwards; one that we hold is raised after our commit.

CREATE FUNCTION @schema@.sharding_fence_v1() RETURNS trigger LANGUAGE plpgsql AS $fence$
DECLARE
    written record;
    stale json[] := '{}';
BEGIN
    FOR written IN
        SELECT DISTINCT n.type_id, n.shard, n.epoch FROM new_rows n ORDER BY n.type_id, n.shard, n.epoch
    LOOP
        PERFORM 1 FROM @schema@.sharding_shard s
            WHERE s.type_id = written.type_id AND s.shard = written.shard AND s.epoch = written.epoch
            FOR SHARE;
        IF NOT FOUND THEN
            stale := array_append(stale, json_build_array(written.type_id, written.shard));
        END IF;
    END LOOP;
    IF cardinality(stale) > 0 THEN
        RAISE EXCEPTION 'sharding: % shard(s) are not at the epoch of this write', cardinality(stale)
            USING ERRCODE = 'SH001', DETAIL = array_to_json(stale)::text;
    END IF;
    RETURN NULL;
END
$fence$;

CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_event
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_event
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_snapshot
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_snapshot
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_state
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_state
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_remembered
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_remembered
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
