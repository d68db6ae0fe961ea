-- Resizes: the number of shards of a type changes group by group. protocol/numbering.py says what a group is.

-- The number of shards that holds for a hash, or for a shard.
CREATE FUNCTION @schema@.sharding_modulus_v1(place bigint, shards integer, wanted integer, resized integer)
RETURNS integer LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $modulus$
    SELECT CASE WHEN wanted > 0 AND place % least(shards, wanted) < resized THEN wanted ELSE shards END
$modulus$;

-- CRC-32 of a text's UTF-8, as nodes compute it, two steps of four bits for each byte.
CREATE FUNCTION @schema@.sharding_hash_v1(entity text) RETURNS bigint LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
AS $hash$
DECLARE
    bytes bytea := convert_to(entity, 'UTF8');
    steps bigint[] := ARRAY[
        0, 498536548, 997073096, 651767980, 1994146192, 1802195444, 1303535960, 1342533948,
        3988292384, 4027552580, 3604390888, 3412177804, 2607071920, 2262029012, 2685067896, 3183342108];
    crc bigint := 4294967295;
BEGIN
    FOR place IN 0..length(bytes) - 1 LOOP
        crc := crc # get_byte(bytes, place);
        crc := (crc >> 4) # steps[(crc & 15) + 1];
        crc := (crc >> 4) # steps[(crc & 15) + 1];
    END LOOP;
    RETURN crc # 4294967295;
END
$hash$;

-- The shard of an id by these numbers. Its hash, which takes long, is computed once.
CREATE FUNCTION @schema@.sharding_shard_of_v1(entity text, shards integer, wanted integer, resized integer)
RETURNS integer LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $shard_of$
DECLARE
    place bigint := @schema@.sharding_hash_v1(entity);
BEGIN
    RETURN place % @schema@.sharding_modulus_v1(place, shards, wanted, resized);
END
$shard_of$;

-- The shards that an id had, or is to have, by the numbers of its type's resizes. A message that was stored from outside by a
-- transaction that knew a former number may stand in one of them. Empty for a type that was never resized.
CREATE FUNCTION @schema@.sharding_former_shards_v1(of_type integer, entity text)
RETURNS integer[] LANGUAGE sql STABLE PARALLEL SAFE AS $former$
    SELECT ARRAY(
        SELECT (@schema@.sharding_hash_v1(entity) % declared.number)::integer
        FROM @schema@.sharding_type t
        CROSS JOIN LATERAL unnest(t.declared_shards) AS declared (number)
        WHERE t.id = of_type)
$former$;

-- Says how many shards a type is to have. The coordinator changes the groups of shards, one after the other. Shards that lie
-- in different journals cannot become one, and none may be on its way to another journal. No row: refused.
CREATE FUNCTION @schema@.sharding_resize_v1(type_name text, known integer, wanted integer, by_whom text)
RETURNS TABLE (number integer, shards_wanted integer) LANGUAGE plpgsql AS $resize$
#variable_conflict use_column
DECLARE
    of_type integer;
BEGIN
    PERFORM @schema@.sharding_check_journals_v1();
    -- A move of shards holds this row while it begins: the rows that it has made are seen by what follows.
    SELECT t.id INTO of_type FROM @schema@.sharding_type t WHERE t.name = type_name FOR NO KEY UPDATE;
    RETURN QUERY
        WITH wished AS (
            UPDATE @schema@.sharding_type t SET
                shards_wanted = wanted, shards_revision = t.shards_revision + 1,
                declared_shards = ARRAY(
                    SELECT DISTINCT each.number FROM unnest(t.declared_shards || t.number_of_shards || wanted) AS each (number)
                    ORDER BY each.number)
            WHERE t.id = of_type AND NOT t.changeable AND t.shards_wanted = 0 AND t.number_of_shards = known
                AND NOT EXISTS (
                    SELECT FROM @schema@.sharding_shard s
                    WHERE s.type_id = t.id AND s.shard < t.number_of_shards
                    GROUP BY s.shard % least(t.number_of_shards, wanted)
                    HAVING count(DISTINCT s.journal) > 1)
                -- A copy that a shard has left is known by the number of the shard.
                AND NOT EXISTS (SELECT FROM @schema@.sharding_move m WHERE m.type_id = t.id)
            RETURNING t.name, t.number_of_shards, t.shards_wanted
        ), noted AS (
            INSERT INTO @schema@.sharding_decision (action, subject, detail)
            SELECT 'resize_asked', w.name, format('%s -> %s shards, by %s', w.number_of_shards, w.shards_wanted, by_whom)
            FROM wished w WHERE by_whom <> ''
        )
        SELECT w.number_of_shards, w.shards_wanted FROM wished w;
END
$resize$;

-- One step of a resize: the groups from the first that has not changed to `upto`, while no shard of them has a home. The
-- rows of their entities move first, some at a time: until all have, the answer has the known revision, and the caller
-- comes again. The shards of these groups get an epoch that none of them has had, so that a frozen home writes nothing.
-- No row: the revision is another one, a shard has a home, or shards of the type are on their way to another journal.
CREATE FUNCTION @schema@.sharding_renumber_v1(
    my_term bigint, type_name text, known_revision bigint, upto integer, least_epoch bigint, at_most integer
) RETURNS TABLE (
    number integer, wanted integer, resized integer, revision bigint, shard integer, epoch bigint, step text
) LANGUAGE plpgsql AS $renumber$
#variable_conflict use_column
DECLARE
    t record;
    groups integer;
    beyond integer;
    new_epoch bigint;
    former integer[];
    messages text[];
    marks text[];
    moved bigint;
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    PERFORM @schema@.sharding_check_journals_v1();
    SELECT y.id, y.number_of_shards, y.shards_wanted, y.groups_resized, y.followed INTO t
        FROM @schema@.sharding_type y
        WHERE y.name = type_name AND y.shards_revision = known_revision AND y.shards_wanted > 0
        FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM @schema@.sharding_move m WHERE m.type_id = t.id AND m.step IN ('copying', 'closed')) THEN
        RETURN;
    END IF;
    groups := least(t.number_of_shards, t.shards_wanted);
    beyond := greatest(t.number_of_shards, t.shards_wanted);
    former := ARRAY(
        SELECT place.shard FROM generate_series(0, t.number_of_shards - 1) AS place (shard)
        WHERE place.shard % groups >= t.groups_resized AND place.shard % groups < upto);
    -- As in appends: messages before shards.
    messages := ARRAY(
        SELECT m.id FROM @schema@.sharding_message m
        WHERE m.type_id = t.id AND m.shard = ANY (former)
            AND @schema@.sharding_hash_v1(m.entity) % t.shards_wanted <> m.shard
        ORDER BY m.id LIMIT at_most FOR UPDATE);
    PERFORM 1 FROM @schema@.sharding_shard s
        WHERE s.type_id = t.id AND s.shard < beyond AND s.shard % groups >= t.groups_resized AND s.shard % groups < upto
        ORDER BY s.shard FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM @schema@.sharding_shard s
        WHERE s.type_id = t.id AND s.shard < beyond AND s.shard % groups >= t.groups_resized AND s.shard % groups < upto
            AND s.home IS NOT NULL
    ) THEN
        RETURN;
    END IF;
    SELECT greatest(least_epoch, max(s.epoch) + 1) INTO new_epoch
        FROM @schema@.sharding_shard s
        WHERE s.type_id = t.id AND s.shard < beyond AND s.shard % groups >= t.groups_resized AND s.shard % groups < upto;
    -- Shards of a group of which any has lived: each may have a part of its entities now.
    -- They lie in the journal of those that their entities come from. So do those that have a row from a former, larger
    -- number: the others may have moved since.
    INSERT INTO @schema@.sharding_shard AS s (type_id, shard, epoch, step, followed, journal)
        SELECT t.id, place.shard, new_epoch, 'stopped', t.followed, lived.journal
        FROM generate_series(0, t.shards_wanted - 1) AS place (shard)
        CROSS JOIN LATERAL (
            SELECT s.journal FROM @schema@.sharding_shard s
            WHERE s.type_id = t.id AND s.shard % groups = place.shard % groups AND s.shard < t.number_of_shards
            LIMIT 1
        ) lived
        WHERE place.shard % groups >= t.groups_resized AND place.shard % groups < upto
        ORDER BY place.shard
        ON CONFLICT (type_id, shard) DO UPDATE SET journal = EXCLUDED.journal, followed = EXCLUDED.followed
            WHERE s.shard >= t.number_of_shards
                AND (s.journal, s.followed) IS DISTINCT FROM (EXCLUDED.journal, EXCLUDED.followed);
    WITH moving AS MATERIALIZED (
        SELECT r.shard, r.entity, (@schema@.sharding_hash_v1(r.entity) % t.shards_wanted)::integer AS later
        FROM @schema@.sharding_remembered r
        WHERE r.type_id = t.id AND r.shard = ANY (former)
    ), first_ones AS (
        SELECT m.shard, m.entity, m.later FROM moving m WHERE m.later <> m.shard LIMIT at_most
    )
    UPDATE @schema@.sharding_remembered r SET shard = first_ones.later, epoch = s.epoch
        FROM first_ones JOIN @schema@.sharding_shard s ON s.type_id = t.id AND s.shard = first_ones.later
        WHERE r.type_id = t.id AND r.shard = first_ones.shard AND r.entity = first_ones.entity;
    GET DIAGNOSTICS moved = ROW_COUNT;
    UPDATE @schema@.sharding_message m SET shard = @schema@.sharding_hash_v1(m.entity) % t.shards_wanted
        WHERE m.id = ANY (messages);
    marks := ARRAY(
        SELECT m.id FROM @schema@.sharding_taken m
        WHERE m.type_id = t.id AND m.shard = ANY (former)
            AND @schema@.sharding_hash_v1(m.entity) % t.shards_wanted <> m.shard
        ORDER BY m.id LIMIT at_most FOR UPDATE);
    UPDATE @schema@.sharding_taken m SET shard = @schema@.sharding_hash_v1(m.entity) % t.shards_wanted
        WHERE m.id = ANY (marks);
    IF moved = at_most OR cardinality(messages) = at_most OR cardinality(marks) = at_most THEN
        RETURN QUERY SELECT t.number_of_shards, t.shards_wanted, t.groups_resized, known_revision, NULL::integer,
            NULL::bigint, NULL::text;
        RETURN;
    END IF;
    UPDATE @schema@.sharding_shard s SET epoch = new_epoch, updated_at = clock_timestamp()
        WHERE s.type_id = t.id AND s.shard < beyond AND s.shard % groups >= t.groups_resized AND s.shard % groups < upto;
    IF t.shards_wanted > t.number_of_shards THEN
        INSERT INTO @schema@.sharding_location (type_id, shard, node)
            SELECT l.type_id, place.shard, l.node
            FROM @schema@.sharding_location l
            CROSS JOIN LATERAL generate_series(l.shard + groups, t.shards_wanted - 1, groups) AS place (shard)
            WHERE l.type_id = t.id AND l.shard < groups AND l.shard >= t.groups_resized AND l.shard < upto
            ON CONFLICT (type_id, shard) DO UPDATE SET node = EXCLUDED.node, at = now();
    ELSE
        DELETE FROM @schema@.sharding_location l
            WHERE l.type_id = t.id AND l.shard >= groups AND l.shard % groups >= t.groups_resized AND l.shard % groups < upto;
    END IF;
    UPDATE @schema@.sharding_type y SET
            number_of_shards = CASE WHEN upto = groups THEN t.shards_wanted ELSE t.number_of_shards END,
            shards_wanted = CASE WHEN upto = groups THEN 0 ELSE t.shards_wanted END,
            groups_resized = CASE WHEN upto = groups THEN 0 ELSE upto END,
            shards_revision = y.shards_revision + 1,
            locations_change = y.locations_change + 1
        WHERE y.id = t.id;
    RETURN QUERY
        SELECT y.number_of_shards, y.shards_wanted, y.groups_resized, y.shards_revision, s.shard, s.epoch, s.step
        FROM @schema@.sharding_type y
        LEFT JOIN @schema@.sharding_shard s ON s.type_id = y.id AND s.shard < t.shards_wanted
            AND s.shard % groups >= t.groups_resized AND s.shard % groups < upto
        WHERE y.id = t.id
        ORDER BY s.shard;
END
$renumber$;
