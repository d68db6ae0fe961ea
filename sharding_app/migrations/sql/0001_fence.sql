-- The fence: a row may only be written at its shard's current epoch. It binds every writer, ours or not.
-- Shards are locked FOR SHARE in one order, the order in which the coordinator locks them: no deadlock. An epoch that
-- is being raised is waited for, and judged as it is afterwards; one that we hold is raised after our commit.

CREATE FUNCTION @schema@.sharding_fence_v1() RETURNS trigger LANGUAGE plpgsql AS $fence$
DECLARE
    written bigint;
    locked bigint;
    stale json;
    followed_types integer[];
    followed_type integer;
BEGIN
    IF TG_TABLE_NAME = 'sharding_message' AND NOT EXISTS (SELECT FROM new_rows n WHERE n.epoch IS NOT NULL) THEN
        RETURN NULL;
    END IF;
    WITH claim AS MATERIALIZED (
        SELECT DISTINCT n.type_id, n.shard, n.epoch FROM new_rows n WHERE n.epoch IS NOT NULL
    ), held AS MATERIALIZED (
        SELECT s.type_id, s.followed
        FROM claim c
        JOIN @schema@.sharding_shard s ON s.type_id = c.type_id AND s.shard = c.shard AND s.epoch = c.epoch
        ORDER BY s.type_id, s.shard
        FOR SHARE OF s
    )
    SELECT (SELECT count(*) FROM claim), (SELECT count(*) FROM held),
            (SELECT array_agg(DISTINCT h.type_id) FROM held h WHERE h.followed)
        INTO written, locked, followed_types;
    IF written <> locked THEN
        -- Epochs never go down: what was stale above is stale here. A claim ahead of the table may have come true since.
        SELECT json_agg(json_build_array(c.type_id, c.shard) ORDER BY c.type_id, c.shard) INTO stale
            FROM (SELECT DISTINCT n.type_id, n.shard, n.epoch FROM new_rows n WHERE n.epoch IS NOT NULL) c
            WHERE NOT EXISTS (
                SELECT FROM @schema@.sharding_shard s
                WHERE s.type_id = c.type_id AND s.shard = c.shard AND s.epoch = c.epoch);
        RAISE EXCEPTION 'sharding: % shard(s) are not at the epoch of this write', written - locked
            USING ERRCODE = 'SH001', DETAIL = COALESCE(stale::text, '[]');
    END IF;
    -- Who begins to follow a type waits for the locks held here, so each append writes this or was committed before.
    IF followed_types IS NOT NULL AND TG_TABLE_NAME = 'sharding_event' AND TG_OP = 'INSERT' THEN
        -- One type at a time: to group by type as well costs more than all of the rest.
        FOREACH followed_type IN ARRAY followed_types LOOP
            INSERT INTO @schema@.sharding_change (type_id, events, entities, slices, firsts, lasts)
                SELECT followed_type, sum(e.events), array_agg(e.entity),
                    array_agg(get_byte(sha256(convert_to(e.entity, 'UTF8')), 0) & 127), array_agg(e.first), array_agg(e.last)
                FROM (
                    SELECT n.entity, min(n.seq) AS first, max(n.seq) AS last, count(*) AS events
                    FROM new_rows n
                    WHERE n.type_id = followed_type
                    GROUP BY n.entity
                ) e;
        END LOOP;
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
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_remembered
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_remembered
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
-- Messages are changed by the homes of their targets too: these are judged by the events of the same transaction.
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_message
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
-- A mark is made whole by an append of its home, whose events are judged.
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_taken
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
