-- The coordinator's two writes that need several statements. As functions they are one round trip: a coordinator that
-- is frozen in the middle holds no lock. Each locks the term's row FOR SHARE first, so a newer term waits or wins.

CREATE FUNCTION @schema@.sharding_guard_v1(my_term bigint) RETURNS void LANGUAGE plpgsql AS $guard$
BEGIN
    PERFORM 1 FROM @schema@.sharding_coordinator c WHERE c.term = my_term FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'sharding: the term has moved on from %', my_term USING ERRCODE = 'SH002';
    END IF;
END
$guard$;

CREATE FUNCTION @schema@.sharding_decide_v1(
    my_term bigint, names text[], shards integer[], expected bigint[], epochs bigint[], homes text[], steps text[]
) RETURNS TABLE (type text, shard integer, epoch bigint, home text, step text) LANGUAGE plpgsql AS $decide$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    PERFORM 1
        FROM unnest(names, shards) AS change (name, shard)
        JOIN @schema@.sharding_type t ON t.name = change.name
        JOIN @schema@.sharding_shard s ON s.type_id = t.id AND s.shard = change.shard
        ORDER BY s.type_id, s.shard
        FOR NO KEY UPDATE OF s;
    UPDATE @schema@.sharding_shard s
        SET epoch = change.epoch, home = change.home, step = change.step, updated_at = clock_timestamp()
        FROM unnest(names, shards, expected, epochs, homes, steps)
            AS change (name, shard, expected, epoch, home, step)
        JOIN @schema@.sharding_type t ON t.name = change.name
        WHERE s.type_id = t.id AND s.shard = change.shard AND s.epoch = change.expected;
    INSERT INTO @schema@.sharding_shard (type_id, shard, epoch, home, step)
        SELECT t.id, change.shard, change.epoch, change.home, change.step
        FROM unnest(names, shards, expected, epochs, homes, steps)
            AS change (name, shard, expected, epoch, home, step)
        JOIN @schema@.sharding_type t ON t.name = change.name
        WHERE change.expected = 0
        ORDER BY t.id, change.shard
        ON CONFLICT DO NOTHING;
    RETURN QUERY
        SELECT t.name, s.shard, s.epoch, s.home, s.step
        FROM unnest(names, shards) AS change (name, shard)
        JOIN @schema@.sharding_type t ON t.name = change.name
        JOIN @schema@.sharding_shard s ON s.type_id = t.id AND s.shard = change.shard;
END
$decide$;

-- A dead node's connections are known by the pids and start times in its row, and by the name that each of them bears:
-- one that was opened again since the row was written is found too.
CREATE FUNCTION @schema@.sharding_bury_v1(my_term bigint, dead text) RETURNS integer LANGUAGE plpgsql AS $bury$
DECLARE
    ended integer;
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    SELECT count(*) FILTER (WHERE pg_terminate_backend(a.pid)) INTO ended
        FROM pg_stat_activity a
        WHERE a.pid <> pg_backend_pid() AND (
            starts_with(a.application_name, 'sharding/' || dead || '/')
            OR EXISTS (
                SELECT FROM @schema@.sharding_node n, jsonb_to_recordset(n.backends) AS b (pid integer, started timestamptz)
                WHERE n.incarnation = dead AND b.pid = a.pid AND b.started = a.backend_start
            )
        );
    DELETE FROM @schema@.sharding_node n WHERE n.incarnation = dead;
    RETURN ended;
END
$bury$;
