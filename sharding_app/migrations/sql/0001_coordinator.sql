-- The coordinator's writes that need several statements. As functions they are one round trip: a coordinator that
-- is frozen in the middle holds no lock. Each locks the term's row FOR SHARE first, so a newer term waits or wins.

-- The lineage in which this server is (`records.Lineage`), as the row of the coordinator has that of its election.
CREATE FUNCTION @schema@.sharding_lineage_v1() RETURNS text LANGUAGE sql STABLE AS $lineage$
    SELECT system_identifier::text || ':' || split_part(pg_relation_filepath(1259), '/', -2)
        || '/' || ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint
    FROM pg_control_system()
$lineage$;

-- A term ends with the lineage of its election: a coordinator that has not heard of a failover decides nothing behind it. Its
-- epochs may have been given out in the rows that are lost.
CREATE FUNCTION @schema@.sharding_guard_v1(my_term bigint) RETURNS void LANGUAGE plpgsql AS $guard$
BEGIN
    PERFORM 1 FROM @schema@.sharding_coordinator c
        WHERE c.term = my_term AND COALESCE(c.lineage = @schema@.sharding_lineage_v1(), true) FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'sharding: the term has moved on from %', my_term USING ERRCODE = 'SH002';
    END IF;
END
$guard$;

-- The further journals that are to be read before any shard gets its first home, since this server has gone on in another
-- lineage: rows of shards may be lost here. The first election there comes before that. Null: none.
CREATE FUNCTION @schema@.sharding_journals_to_read_v1() RETURNS text[] LANGUAGE sql STABLE AS $journals_to_read$
    SELECT ARRAY(SELECT j.name FROM @schema@.sharding_journal j ORDER BY j.name)
    FROM @schema@.sharding_coordinator c
    WHERE c.term >> 16 > c.journals_read
        OR (EXISTS (SELECT FROM @schema@.sharding_journal) AND c.lineage <> @schema@.sharding_lineage_v1())
$journals_to_read$;

CREATE FUNCTION @schema@.sharding_check_journals_v1() RETURNS void LANGUAGE plpgsql AS $check_journals$
BEGIN
    IF cardinality(@schema@.sharding_journals_to_read_v1()) > 0 THEN
        RAISE EXCEPTION 'sharding: since this server went on in another lineage, its coordinator has not read yet which shards lie in'
            ' the journals %: until then no shard gets its first home, and no resize goes on',
            array_to_string(@schema@.sharding_journals_to_read_v1(), ', ') USING ERRCODE = 'SH004';
    END IF;
END
$check_journals$;

-- Makes rows for shards that lie in further journals and have none here: they were lost. One that there is not by the numbers
-- here, since a resize was lost too, stands for the one that has its entities now. Its journal's numbers are noted, so that
-- other shards of the same group come to lie there. No row: there are more journals than those that were read.
CREATE FUNCTION @schema@.sharding_restore_shards_v1(
    my_term bigint, read text[], names text[], shards integer[], epochs bigint[], journals text[], steps text[],
    numbers integer[], wanted integer[]
) RETURNS boolean LANGUAGE plpgsql AS $restore$
BEGIN
    PERFORM 1 FROM @schema@.sharding_coordinator c WHERE c.term = my_term FOR NO KEY UPDATE;
    PERFORM @schema@.sharding_guard_v1(my_term);
    IF EXISTS (SELECT FROM @schema@.sharding_journal j WHERE j.name <> ALL (read)) THEN
        RETURN false;
    END IF;
    PERFORM 1 FROM @schema@.sharding_type t WHERE t.name = ANY (names) ORDER BY t.id FOR NO KEY UPDATE;
    UPDATE @schema@.sharding_type t SET declared_shards = ARRAY(
            SELECT DISTINCT each.number FROM unnest(t.declared_shards || t.number_of_shards || t.shards_wanted || other.numbers)
                AS each (number) WHERE each.number > 0 ORDER BY each.number)
        FROM (
            SELECT found.name, array_agg(found.number) || array_agg(found.wanted) AS numbers
            FROM unnest(names, numbers, wanted) AS found (name, number, wanted) GROUP BY found.name
        ) other
        WHERE t.name = other.name
            AND NOT other.numbers <@ (t.declared_shards || t.number_of_shards || t.shards_wanted || 0);
    INSERT INTO @schema@.sharding_shard (type_id, shard, epoch, step, followed, journal)
        SELECT DISTINCT ON (t.id, place.shard) t.id, place.shard, found.epoch, 'stopped', t.followed, found.journal
        FROM unnest(names, shards, epochs, journals, steps, numbers, wanted)
            AS found (name, shard, epoch, journal, step, number, wanted)
        JOIN @schema@.sharding_type t ON t.name = found.name
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN found.shard < @schema@.sharding_modulus_v1(found.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
                    THEN found.shard
                ELSE found.shard % least(t.number_of_shards, NULLIF(t.shards_wanted, 0), found.number, NULLIF(found.wanted, 0))
            END AS shard
        ) place
        ORDER BY t.id, place.shard, place.shard = found.shard DESC, array_position('{home,stopped,copied}', found.step), found.epoch DESC
        ON CONFLICT DO NOTHING;
    UPDATE @schema@.sharding_coordinator SET journals_read = term >> 16;
    RETURN true;
END
$restore$;

-- A shard that is closed for a move to another journal (sharding_move) gets no home, whatever the coordinator knows: one
-- that is to leave a home has none afterwards, and one without a home stays as it is.
CREATE FUNCTION @schema@.sharding_decide_v1(
    my_term bigint, names text[], shards integer[], expected bigint[], epochs bigint[], homes text[], steps text[],
    journals text[]
) RETURNS TABLE (type text, shard integer, epoch bigint, home text, step text) LANGUAGE plpgsql AS $decide$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    IF 0 = ANY (expected) THEN
        PERFORM @schema@.sharding_check_journals_v1();
    END IF;
    -- A projection may begin to follow a type, and an operator may begin a resize: it waits for the rows that are new here,
    -- or they know of it.
    PERFORM 1
        FROM @schema@.sharding_type t
        WHERE t.name IN (SELECT new.name FROM unnest(names, expected) AS new (name, epoch) WHERE new.epoch = 0)
        ORDER BY t.id
        FOR SHARE;
    PERFORM 1
        FROM unnest(names, shards) AS change (name, shard)
        JOIN @schema@.sharding_type t ON t.name = change.name
        JOIN @schema@.sharding_shard s ON s.type_id = t.id AND s.shard = change.shard
        ORDER BY s.type_id, s.shard
        FOR NO KEY UPDATE OF s;
    UPDATE @schema@.sharding_shard s
        SET epoch = change.epoch, updated_at = clock_timestamp(),
            home = CASE WHEN m.shard IS NULL THEN change.home END,
            step = CASE WHEN m.shard IS NULL THEN change.step ELSE 'stopped' END
        FROM unnest(names, shards, expected, epochs, homes, steps)
            AS change (name, shard, expected, epoch, home, step)
        JOIN @schema@.sharding_type t ON t.name = change.name
        LEFT JOIN @schema@.sharding_move m
            ON m.type_id = t.id AND m.shard = change.shard AND m.step = 'closed' AND change.step = 'home'
        WHERE s.type_id = t.id AND s.shard = change.shard AND s.epoch = change.expected
            AND (m.shard IS NULL OR s.home IS NOT NULL);
    -- Shards that a resize makes one, or has made of one, lie in one journal, whenever they get their first home: a resize may
    -- be lost with a failover. Those of the group that changes now come first, since others may have been moved.
    INSERT INTO @schema@.sharding_shard (type_id, shard, epoch, home, step, followed, journal)
        SELECT new.id, new.shard, new.epoch, new.home, new.step, new.followed, coalesce(
            (SELECT s.journal FROM @schema@.sharding_shard s
                WHERE new.groups > 0 AND s.type_id = new.id AND s.shard < new.number
                    AND s.shard % new.groups = new.shard % new.groups
                LIMIT 1),
            (SELECT s.journal FROM @schema@.sharding_shard s
                WHERE new.least > 0 AND s.type_id = new.id AND s.shard < new.number
                    AND s.shard % new.least = new.shard % new.least
                ORDER BY s.shard LIMIT 1),
            first_value(new.journal) OVER (PARTITION BY new.id, coalesce(new.shard % nullif(new.least, 0), new.shard)
                ORDER BY new.shard))
        FROM (
            SELECT t.id, t.followed, t.number_of_shards AS number,
                CASE WHEN t.shards_wanted > 0 THEN least(t.number_of_shards, t.shards_wanted) ELSE 0 END AS groups,
                coalesce((SELECT min(each.number) FROM unnest(t.declared_shards) AS each (number)), 0) AS least,
                change.shard, change.epoch, change.home, change.step, change.journal
            FROM unnest(names, shards, expected, epochs, homes, steps, journals)
                AS change (name, shard, expected, epoch, home, step, journal)
            JOIN @schema@.sharding_type t ON t.name = change.name
            WHERE change.expected = 0 AND NOT EXISTS (
                SELECT FROM @schema@.sharding_move m
                WHERE m.type_id = t.id AND m.shard = change.shard AND m.step = 'closed')
        ) new
        ORDER BY new.id, new.shard
        ON CONFLICT DO NOTHING;
    RETURN QUERY
        SELECT t.name, s.shard, s.epoch, s.home, s.step
        FROM unnest(names, shards) AS change (name, shard)
        JOIN @schema@.sharding_type t ON t.name = change.name
        JOIN @schema@.sharding_shard s ON s.type_id = t.id AND s.shard = change.shard;
END
$decide$;

-- A rescale, once no worker of the set has a home: what is wanted by now counts.
CREATE FUNCTION @schema@.sharding_put_in_force_v1(my_term bigint, type_name text, known_revision bigint)
RETURNS TABLE (type text, workers integer, wanted integer, revision bigint) LANGUAGE plpgsql AS $force$
#variable_conflict use_column
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    RETURN QUERY
        UPDATE @schema@.sharding_type t
        SET workers = t.workers_wanted, workers_revision = t.workers_revision + 1
        WHERE t.name = type_name AND t.workers > 0 AND t.workers_revision = known_revision
        RETURNING t.name, t.workers, t.workers_wanted, t.workers_revision;
END
$force$;

-- Opens the shards whose closing has lapsed: the command that moves them to another journal has stopped. If its transaction
-- still stands ten seconds later, its session is ended: over a Unix socket no time limit ends one that waits for a process
-- that takes no rows. The role is that of the login, as where a dead node is buried.
CREATE FUNCTION @schema@.sharding_open_lapsed_v1(my_term bigint)
RETURNS TABLE (type text, shard integer, target text) LANGUAGE plpgsql AS $open$
#variable_conflict use_column
DECLARE
    types integer[];
    lapsed timestamptz;
    acting_as text := current_setting('role');
    found record;
BEGIN
    PERFORM @schema@.sharding_guard_v1(my_term);
    SELECT min(m.closed_until) INTO lapsed FROM @schema@.sharding_move m WHERE m.step = 'closed';
    IF lapsed < clock_timestamp() - interval '10 seconds' THEN
        PERFORM set_config('role', 'none', true);
        FOR found IN
            SELECT a.pid FROM pg_stat_activity a
            WHERE a.datname = current_database() AND a.application_name = 'sharding//moving' AND a.xact_start < lapsed
                AND EXISTS (
                    SELECT FROM pg_locks held
                    WHERE held.pid = a.pid AND held.relation = '@schema@.sharding_type'::regclass
                        AND held.mode = 'RowShareLock')
        LOOP
            BEGIN
                PERFORM pg_terminate_backend(found.pid);
            EXCEPTION WHEN insufficient_privilege THEN
                RAISE DEBUG 'sharding: process % holds up closed shards and may not be ended', found.pid;
            END;
        END LOOP;
        PERFORM set_config('role', acting_as, true);
    END IF;
    -- The rows of types first, as a command does that closes shards.
    types := ARRAY(
        SELECT t.id FROM @schema@.sharding_type t
        WHERE EXISTS (
            SELECT FROM @schema@.sharding_move m
            WHERE m.type_id = t.id AND m.step = 'closed' AND m.closed_until < clock_timestamp())
        ORDER BY t.id FOR NO KEY UPDATE);
    RETURN QUERY
        WITH opened AS (
            UPDATE @schema@.sharding_move m SET step = 'copying', closed_until = NULL, at = clock_timestamp()
            WHERE m.type_id = ANY (types) AND m.step = 'closed' AND m.closed_until < clock_timestamp()
            RETURNING m.type_id, m.shard, m.target
        ), counted AS (
            UPDATE @schema@.sharding_type t SET closings = t.closings + 1
            WHERE t.id IN (SELECT o.type_id FROM opened o)
        )
        SELECT t.name, o.shard, o.target
        FROM opened o JOIN @schema@.sharding_type t ON t.id = o.type_id
        ORDER BY t.name, o.shard;
END
$open$;

-- Bury a dead node: end its sessions and delete its row. It is buried only while both of its locks are free. The verdict
-- rests on a reading that may be old by now; a node that came back since has taken its locks and then written to its row,
-- so this row's lock puts the two in order. Its sessions are known by the pids and start times in its row, and by the name
-- that each of them bears: one that was opened again since the row was written is found too.
-- A session that may not be ended holds nothing up: the fence refuses its writes. Sessions are ended as the role that has
-- logged in, since under an assumed role (`SET ROLE`) their start times are hidden and ending them is refused.
CREATE FUNCTION @schema@.sharding_bury_v1(my_term bigint, dead text) RETURNS boolean LANGUAGE plpgsql AS $bury$
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
