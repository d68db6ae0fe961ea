-- Shards in a journal that is not the cluster's own. Its rows of types and shards are made here, by the homes of the shards:
-- the fence reads them, as it reads the coordinator's in the cluster's own database.

-- Follow a resize: the rows of entities that have another shard now get it. All shards whose group has changed since this
-- journal last heard of the numbers are fenced first, so that no former home writes any more: each gets an epoch above its
-- last one, and below that of its next home. A take by former numbers comes before, or learns of the new ones: each holds the
-- key of the type's row. Locks are taken in the order of appends, those of shards that are about to be taken too. Of a shard
-- that has left this journal all shards of its group have left, and of one that has come back all are back, whatever a row
-- from a former, larger number says.
CREATE FUNCTION @schema@.sharding_refile_v1(
    of_type integer, number integer, wanted integer, resized integer, revision bigint, taken integer[]
) RETURNS void LANGUAGE plpgsql AS $refile$
#variable_conflict use_column
DECLARE
    t record;
    changed integer[];
    groups integer;
BEGIN
    SELECT y.number_of_shards, y.shards_wanted, y.groups_resized, y.shards_revision INTO t
        FROM @schema@.sharding_type y WHERE y.id = of_type FOR UPDATE;
    IF t.shards_revision >= revision THEN
        RETURN;
    END IF;
    changed := ARRAY(
        SELECT s.shard FROM @schema@.sharding_shard s
        WHERE s.type_id = of_type
            AND @schema@.sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
                <> @schema@.sharding_modulus_v1(s.shard, number, wanted, resized));
    PERFORM 1 FROM @schema@.sharding_message m
        WHERE m.type_id = of_type AND m.shard = ANY (changed) ORDER BY m.id FOR UPDATE;
    PERFORM 1 FROM @schema@.sharding_shard s
        WHERE s.type_id = of_type AND s.shard = ANY (changed || taken) ORDER BY s.shard FOR NO KEY UPDATE;
    UPDATE @schema@.sharding_shard s SET epoch = s.epoch + 1, home = NULL, updated_at = clock_timestamp(),
            step = CASE s.step WHEN 'copied' THEN 'copied' ELSE 'stopped' END
        WHERE s.type_id = of_type AND s.shard = ANY (changed);
    WITH moving AS MATERIALIZED (
        SELECT r.shard, r.entity, @schema@.sharding_shard_of_v1(r.entity, number, wanted, resized) AS later
        FROM @schema@.sharding_remembered r
        WHERE r.type_id = of_type AND r.shard = ANY (changed)
    ), added AS (
        INSERT INTO @schema@.sharding_shard (type_id, shard, epoch, step, followed)
        SELECT DISTINCT ON (m.later) of_type, m.later, s.epoch, s.step, s.followed
        FROM moving m JOIN @schema@.sharding_shard s ON s.type_id = of_type AND s.shard = m.shard
        ORDER BY m.later, s.epoch DESC
        ON CONFLICT DO NOTHING
        RETURNING shard, epoch
    ), later AS MATERIALIZED (
        SELECT a.shard, a.epoch FROM added a
        UNION ALL
        SELECT s.shard, s.epoch FROM @schema@.sharding_shard s WHERE s.type_id = of_type
    )
    UPDATE @schema@.sharding_remembered r SET shard = l.shard, epoch = l.epoch
        FROM moving m JOIN later l ON l.shard = m.later
        WHERE r.type_id = of_type AND r.shard = m.shard AND r.entity = m.entity AND m.later <> m.shard;
    groups := least(t.number_of_shards, NULLIF(t.shards_wanted, 0), number, NULLIF(wanted, 0));
    UPDATE @schema@.sharding_shard s SET journal = lived.journal
        FROM @schema@.sharding_shard lived
        WHERE s.type_id = of_type AND s.shard = ANY (changed) AND s.shard >= t.number_of_shards
            AND lived.type_id = of_type AND lived.shard = s.shard % groups AND s.journal <> lived.journal;
    INSERT INTO @schema@.sharding_shard (type_id, shard, epoch, step, followed, journal)
        SELECT DISTINCT ON (place.shard) of_type, place.shard, s.epoch, 'stopped', s.followed, s.journal
        FROM @schema@.sharding_shard s
        CROSS JOIN LATERAL generate_series(s.shard % groups, greatest(number, wanted) - 1, groups) AS place (shard)
        WHERE s.type_id = of_type AND s.shard = ANY (changed) AND s.journal <> ''
        ORDER BY place.shard, s.epoch DESC
        ON CONFLICT DO NOTHING;
    -- Also those of an append that was waited for. OFFSET 0: each id is hashed once.
    UPDATE @schema@.sharding_message m SET shard = moving.later
        FROM (
            SELECT o.id, @schema@.sharding_shard_of_v1(o.entity, number, wanted, resized) AS later
            FROM @schema@.sharding_message o WHERE o.type_id = of_type AND o.shard = ANY (changed) OFFSET 0
        ) moving
        WHERE m.id = moving.id AND m.shard <> moving.later;
    UPDATE @schema@.sharding_taken m SET shard = moving.later
        FROM (
            SELECT o.id, @schema@.sharding_shard_of_v1(o.entity, number, wanted, resized) AS later
            FROM @schema@.sharding_taken o WHERE o.type_id = of_type AND o.shard = ANY (changed) OFFSET 0
        ) moving
        WHERE m.id = moving.id AND m.shard <> moving.later;
    UPDATE @schema@.sharding_type y SET
            number_of_shards = number, shards_wanted = wanted, groups_resized = resized, shards_revision = revision,
            declared_shards = ARRAY(
                SELECT DISTINCT each.number FROM unnest(y.declared_shards || y.number_of_shards || number || wanted) AS each (number)
                WHERE each.number > 0 ORDER BY each.number)
        WHERE y.id = of_type;
END
$refile$;

-- Give shards to a home. An append under way holds the row of its shard, and is waited for. A later epoch stays, and so do
-- numbers of a later revision: what comes late changes nothing. Nor is a shard given that has moved to another journal, as
-- its row here says: its rows here are a copy that was left behind. The cluster's own database names this journal again only
-- if it has lost that with a failover.
CREATE FUNCTION @schema@.sharding_take_v1(
    of_type integer, type_name text, number integer, wanted integer, resized integer, revision bigint,
    shards integer[], epochs bigint[], my_home text
) RETURNS TABLE (taken integer[], used boolean, left_behind integer[], moved_to text[]) LANGUAGE plpgsql AS $take$
#variable_conflict use_column
DECLARE
    t record;
    given integer[];
BEGIN
    INSERT INTO @schema@.sharding_type (
            id, name, kind, number_of_shards, extractor, hash_version, role, store_mode,
            shards_wanted, groups_resized, shards_revision)
        VALUES (of_type, type_name, '', number, '', '', '', '', wanted, resized, revision)
        ON CONFLICT DO NOTHING;
    -- Before the row is held: two that hold it would wait for each other.
    IF EXISTS (SELECT FROM @schema@.sharding_type y WHERE y.id = of_type AND y.name = type_name AND y.shards_revision < revision) THEN
        PERFORM @schema@.sharding_refile_v1(of_type, number, wanted, resized, revision, shards);
    END IF;
    -- Who begins to follow the type waits for the rows that are new here, or they say so (sharding_follow_v1).
    SELECT y.shards_revision, y.uses_messages INTO t
        FROM @schema@.sharding_type y WHERE y.id = of_type AND y.name = type_name FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'sharding: this journal has another type of the number % or of the name %', of_type, type_name;
    END IF;
    IF t.shards_revision > revision THEN
        RETURN QUERY SELECT '{}'::integer[], t.uses_messages, '{}'::integer[], '{}'::text[];
        RETURN;
    END IF;
    WITH mine AS (
        INSERT INTO @schema@.sharding_shard AS s (type_id, shard, epoch, home, step, followed)
        SELECT of_type, place.shard, place.epoch, my_home, 'home', y.followed
        FROM unnest(shards, epochs) AS place (shard, epoch)
        JOIN @schema@.sharding_type y ON y.id = of_type
        ORDER BY place.shard
        ON CONFLICT (type_id, shard) DO UPDATE SET
            epoch = EXCLUDED.epoch, home = EXCLUDED.home, step = 'home', followed = EXCLUDED.followed,
            updated_at = clock_timestamp()
            WHERE s.journal = '' AND (s.epoch < EXCLUDED.epoch
                OR (s.epoch = EXCLUDED.epoch AND COALESCE(s.home, EXCLUDED.home) = EXCLUDED.home))
        RETURNING s.shard
    )
    SELECT array_agg(mine.shard) INTO given FROM mine;
    -- A statement of its own sees what was committed by appends that were waited for: the type's first message, and the like.
    RETURN QUERY
        WITH elsewhere AS (
            SELECT array_agg(s.shard ORDER BY s.shard) AS shards, array_agg(s.journal ORDER BY s.shard) AS journals
            FROM @schema@.sharding_shard s
            WHERE s.type_id = of_type AND s.shard = ANY (shards) AND s.journal <> ''
        )
        SELECT COALESCE(given, '{}'), y.uses_messages, COALESCE(e.shards, '{}'), COALESCE(e.journals, '{}')
            FROM @schema@.sharding_type y, elsewhere e
            WHERE y.id = of_type;
    -- Of a move that has not come to its switch.
    PERFORM @schema@.sharding_unstash_v1(of_type, ARRAY(
        SELECT s.shard
        FROM unnest(shards, epochs) AS place (shard, epoch)
        JOIN @schema@.sharding_shard s ON s.type_id = of_type AND s.shard = place.shard
        WHERE s.epoch = place.epoch AND s.home = my_home));
END
$take$;

-- While shards of a type are copied to another journal: which of its rows were written or deleted. The command makes the
-- triggers and the table, and drops them.
CREATE FUNCTION @schema@.sharding_note_moving_v1() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $note_moving$
BEGIN
    INSERT INTO @schema@.sharding_moving_touched (type_id, entity, shard, first, last)
        SELECT t.type_id, t.entity, max(t.shard), min(t.seq), max(t.seq) FROM touched_rows t
        WHERE t.type_id = TG_ARGV[0]::integer GROUP BY t.type_id, t.entity;
    RETURN NULL;
END
$note_moving$;

-- Put messages back that were taken out of this journal for a move of their shards which has not come to its switch.
CREATE FUNCTION @schema@.sharding_unstash_v1(of_type integer, shards integer[]) RETURNS void LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $unstash$
BEGIN
    IF to_regclass('@schema@.sharding_moving_message') IS NULL THEN
        RETURN;
    END IF;
    BEGIN
        WITH back AS (
            DELETE FROM @schema@.sharding_moving_message m WHERE m.type_id = of_type AND m.shard = ANY (shards) RETURNING m.*
        )
        INSERT INTO @schema@.sharding_message (
                id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due, key, every, reply_to,
                on_failure, failures, parked, error, at, occasion)
            SELECT b.id, b.type_id, b.shard, b.entity, s.epoch, b.seq, b.position, b.target_type, b.target, b.command, b.args,
                b.due, b.key, b.every, b.reply_to, b.on_failure, b.failures, b.parked, b.error, b.at, b.occasion
            FROM back b JOIN @schema@.sharding_shard s ON s.type_id = b.type_id AND s.shard = b.shard;
    EXCEPTION WHEN undefined_table THEN
        NULL; -- The last move has ended meanwhile: nothing was in the table.
    END;
END
$unstash$;

-- Which messages have rows here, also where a move that has not come to its end has taken them out: such a row may be put
-- back, or come to another journal. So a mark of it stays.
CREATE FUNCTION @schema@.sharding_standing_v1(messages text[])
RETURNS TABLE (id text, parked boolean, seconds double precision) LANGUAGE plpgsql STABLE
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $standing$
#variable_conflict use_column
BEGIN
    IF to_regclass('@schema@.sharding_moving_message') IS NOT NULL THEN
        BEGIN
            -- One statement: a row goes from one table to the other in a transaction.
            RETURN QUERY
                SELECT m.id, m.parked, greatest(extract(epoch FROM m.due - clock_timestamp()), 0)::double precision
                FROM @schema@.sharding_message m WHERE m.id = ANY (messages)
                UNION ALL
                SELECT m.id, false, 0::double precision
                FROM @schema@.sharding_moving_message m WHERE m.id = ANY (messages);
            RETURN;
        EXCEPTION WHEN undefined_table THEN
            NULL; -- The last move has ended meanwhile.
        END;
    END IF;
    RETURN QUERY
        SELECT m.id, m.parked, greatest(extract(epoch FROM m.due - clock_timestamp()), 0)::double precision
        FROM @schema@.sharding_message m WHERE m.id = ANY (messages);
END
$standing$;
