-- What appends do with messages and timers. A function is one round trip, and each of its statements sees what is committed
-- by then: a row that had to be waited for is judged as it is after the wait.
-- All lock in one order: rows of messages by id, then new rows, then the rows of shards. So they cannot deadlock.

-- A type whose entities store messages and timers is known by its row: others are never asked about. Not every role that
-- stores from outside may write that row, so it is written as the owner of the tables.
CREATE FUNCTION @schema@.sharding_uses_messages_v1() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $uses_messages$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT n.type_id FROM new_rows n) n
        JOIN @schema@.sharding_type t ON t.id = n.type_id
        WHERE NOT t.uses_messages
    ) THEN
        PERFORM 1 FROM @schema@.sharding_type t
            WHERE t.id IN (SELECT n.type_id FROM new_rows n) AND NOT t.uses_messages
            ORDER BY t.id FOR NO KEY UPDATE;
        UPDATE @schema@.sharding_type t SET uses_messages = true
            WHERE t.id IN (SELECT n.type_id FROM new_rows n) AND NOT t.uses_messages;
    END IF;
    RETURN NULL;
END
$uses_messages$;

CREATE TRIGGER sharding_uses_messages AFTER INSERT ON @schema@.sharding_message
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_uses_messages_v1();

-- Appends events together with messages and timers: rows that are taken, then cancelled, then stored. A row that is
-- taken must be there, be due, and be parked only if this handler has parked it. Otherwise SH003 names all that are not,
-- each with the seconds that it has left, or null where it is gone.
-- Without events (`repeated`) it stores messages that may be there already, from a call whose answer was lost.
-- The table may be empty when a plan is made and large when the plan is used: no plan may read all of it, or lock rows in
-- another order than that of their ids. A plan for these very arrays would cost more than it saves.
-- Many rows come as one array for each column. An array may be empty where no row has a value. They are unnested in a
-- SELECT's list: in FROM each of them would be copied first.
CREATE FUNCTION @schema@.sharding_append_v1(
    event_types integer[], event_entities text[], event_seqs bigint[], event_shards integer[], event_epochs bigint[],
    event_names text[], event_versions integer[], event_payloads text[], event_command_ids text[],
    event_commands text[], event_replies bytea[], event_partials boolean[],
    taken text[], resumed text[], parking text[], repeating text[], repeats text[], repeat_dues timestamptz[],
    key_types integer[], key_entities text[], keys text[],
    ids text[], types integer[], shards integer[], entities text[], epochs bigint[], seqs bigint[], positions integer[],
    target_types text[], targets text[], commands text[], arguments bytea[], dues timestamptz[],
    delays double precision[], timers text[], everies text[], replies_to text[], on_failures text[],
    repeated boolean, claim bigint[]
) RETURNS timestamptz LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $append$
#variable_conflict use_column
DECLARE
    present timestamptz := clock_timestamp();
    only_ends boolean := cardinality(keys) + cardinality(resumed) + cardinality(parking) + cardinality(repeating) = 0;
    touched text[] := taken;
    matched bigint;
    found_ids text[];
    found_dues timestamptz[];
    found_parked boolean[];
    missing json;
BEGIN
    IF cardinality(keys) > 0 THEN
        touched := touched || ARRAY(
            SELECT former.id
            FROM unnest(key_types, key_entities, keys) AS named (type_id, entity, key)
            CROSS JOIN LATERAL (
                SELECT m.id FROM @schema@.sharding_message m
                WHERE m.type_id = named.type_id AND m.entity = named.entity AND m.key = named.key
                LIMIT 1
            ) former);
    END IF;
    IF cardinality(touched) = 0 THEN
        NULL;
    ELSIF only_ends THEN
        -- It goes along the primary key, so it locks in the order of ids. What must not go is brought back by the error.
        WITH gone AS (
            DELETE FROM @schema@.sharding_message m WHERE m.id = ANY (taken) RETURNING m.id, m.due, m.parked
        )
        SELECT count(*) FILTER (WHERE gone.due <= clock_timestamp() AND NOT gone.parked),
                array_agg(gone.id), array_agg(gone.due), array_agg(gone.parked)
            INTO matched, found_ids, found_dues, found_parked
            FROM gone;
    ELSE
        SELECT count(*) FILTER (WHERE held.id = ANY (taken) AND held.due <= clock_timestamp()
                    AND held.parked = (held.id = ANY (resumed))),
                array_agg(held.id), array_agg(held.due), array_agg(held.parked)
            INTO matched, found_ids, found_dues, found_parked
            FROM (
                SELECT m.id, m.due, m.parked FROM @schema@.sharding_message m
                WHERE m.id = ANY (touched) ORDER BY m.id FOR UPDATE
            ) held;
    END IF;
    IF cardinality(taken) > 0 AND matched <> cardinality(taken) THEN
        SELECT json_agg(json_build_array(wanted.id, CASE WHEN wanted.times = 1 AND m.parked = (m.id = ANY (resumed))
                THEN greatest(extract(epoch FROM m.due - present), 0) END) ORDER BY wanted.id)
            INTO missing
            FROM (SELECT w.id, count(*) AS times FROM unnest(taken) AS w (id) GROUP BY w.id) wanted
            LEFT JOIN unnest(found_ids, found_dues, found_parked) AS m (id, due, parked) ON m.id = wanted.id
            WHERE m.id IS NULL OR wanted.times > 1 OR m.due > present OR m.parked <> (m.id = ANY (resumed));
        RAISE EXCEPTION 'sharding: % message(s) do not wait to be taken', cardinality(taken) - matched
            USING ERRCODE = 'SH003', DETAIL = COALESCE(missing::text, '[]');
    END IF;
    IF cardinality(taken) > 0 AND NOT only_ends THEN
        DELETE FROM @schema@.sharding_message m
            WHERE m.id = ANY (taken) AND m.id <> ALL (parking) AND m.id <> ALL (repeating);
        IF cardinality(parking) > 0 THEN
            UPDATE @schema@.sharding_message m
                SET parked = true, error = 'partly applied: the handler has committed in its middle, and did not end'
                WHERE m.id = ANY (parking);
            IF cardinality(keys) > 0 THEN
                -- A timer that its own handler has set anew or cancelled keeps its row, without the key.
                UPDATE @schema@.sharding_message m SET key = NULL, every = NULL
                    FROM unnest(key_types, key_entities, keys) AS named (type_id, entity, key)
                    WHERE m.id = ANY (parking)
                        AND m.type_id = named.type_id AND m.entity = named.entity AND m.key = named.key;
            END IF;
        END IF;
        IF cardinality(repeating) > 0 THEN
            UPDATE @schema@.sharding_message m
                SET id = again.id, due = again.due, failures = 0, parked = false, error = '', occasion = NULL
                FROM unnest(repeating, repeats, repeat_dues) AS again (former, id, due)
                WHERE m.id = again.former;
        END IF;
    END IF;
    IF cardinality(keys) > 0 THEN
        DELETE FROM @schema@.sharding_message m
            WHERE m.id = ANY (ARRAY(
                SELECT former.id
                FROM unnest(key_types, key_entities, keys) AS named (type_id, entity, key)
                CROSS JOIN LATERAL (
                    SELECT m.id FROM @schema@.sharding_message m
                    WHERE m.type_id = named.type_id AND m.entity = named.entity AND m.key = named.key
                    LIMIT 1
                ) former
                WHERE NOT (repeated AND former.id = ANY (ids))));
    END IF;
    IF cardinality(event_seqs) > 0 THEN
        INSERT INTO @schema@.sharding_event (
                type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply, partial)
            SELECT e.type_id, e.entity, e.seq, e.shard, e.epoch, e.name, e.version, e.payload::json, e.command_id,
                e.command, e.reply, e.partial
            FROM (
                SELECT unnest(event_types) AS type_id, unnest(event_entities) AS entity, unnest(event_seqs) AS seq,
                    unnest(event_shards) AS shard, unnest(event_epochs) AS epoch, unnest(event_names) AS name,
                    unnest(event_versions) AS version, unnest(event_payloads) AS payload,
                    unnest(event_command_ids) AS command_id, unnest(event_commands) AS command,
                    unnest(event_replies) AS reply, unnest(event_partials) AS partial
            ) e;
    END IF;
    IF cardinality(ids) > 0 THEN
        INSERT INTO @schema@.sharding_message (
                id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due, key, every,
                reply_to, on_failure)
            SELECT m.id, m.type_id, m.shard, m.entity, m.epoch, m.seq, m.position, m.target_type, m.target, m.command,
                m.args, COALESCE(m.due, present + m.delay * interval '1 second'), m.key, m.every,
                m.reply_to, m.on_failure
            FROM (
                SELECT unnest(ids) AS id, unnest(types) AS type_id, unnest(shards) AS shard, unnest(entities) AS entity,
                    unnest(epochs) AS epoch, unnest(seqs) AS seq, unnest(positions) AS position,
                    unnest(target_types) AS target_type, unnest(targets) AS target, unnest(commands) AS command,
                    unnest(arguments) AS args, unnest(dues) AS due, unnest(delays) AS delay, unnest(timers) AS key,
                    unnest(everies) AS every, unnest(replies_to) AS reply_to, unnest(on_failures) AS on_failure
            ) m
            WHERE NOT (repeated AND EXISTS (SELECT FROM @schema@.sharding_message kept WHERE kept.id = m.id));
    END IF;
    IF cardinality(claim) > 0 THEN
        -- A cancellation alone inserts nothing that a trigger could judge: a former home may have kept it until now.
        PERFORM FROM @schema@.sharding_shard s
            WHERE s.type_id = claim[1] AND s.shard = claim[2] AND s.epoch = claim[3] FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'sharding: 1 shard(s) are not at the epoch of this write'
                USING ERRCODE = 'SH001', DETAIL = json_build_array(json_build_array(claim[1], claim[2]))::text;
        END IF;
    END IF;
    IF repeated THEN
        -- A small write. Rows that were there already may be seen before a synchronous standby has them: its commit covers
        -- those.
        PERFORM pg_logical_emit_message(true, 'sharding', 'repeated');
    END IF;
    RETURN present;
END
$append$;

-- As above, with marks of messages whose rows lie in other journals: each is new, or was made by an earlier commit of the same
-- handler (`marks_resumed`) and is partial until its last one. Otherwise SH003 names those that are not, each with the sign
-- "partly" or "taken", or null where a mark of this handler is gone. Marks are locked last, by id: behind the rows of their
-- shards, whose locks keep all but one home from them. A row of such a message may stand here all the same: it has come with
-- its shard while the delivery was under way. It goes too, once it has taken effect.
CREATE FUNCTION @schema@.sharding_append_marked_v1(
    marks text[], mark_types integer[], mark_shards integer[], mark_epochs bigint[], mark_entities text[],
    mark_journals text[], mark_partials boolean[], marks_resumed text[],
    event_types integer[], event_entities text[], event_seqs bigint[], event_shards integer[], event_epochs bigint[],
    event_names text[], event_versions integer[], event_payloads text[], event_command_ids text[],
    event_commands text[], event_replies bytea[], event_partials boolean[],
    taken text[], resumed text[], parking text[], repeating text[], repeats text[], repeat_dues timestamptz[],
    key_types integer[], key_entities text[], keys text[],
    ids text[], types integer[], shards integer[], entities text[], epochs bigint[], seqs bigint[], positions integer[],
    target_types text[], targets text[], commands text[], arguments bytea[], dues timestamptz[],
    delays double precision[], timers text[], everies text[], replies_to text[], on_failures text[],
    repeated boolean, claim bigint[]
) RETURNS timestamptz LANGUAGE plpgsql
SET enable_seqscan = off SET enable_bitmapscan = off SET plan_cache_mode = force_generic_plan AS $append_marked$
#variable_conflict use_column
DECLARE
    present timestamptz;
    made text[];
    kept text[];
    missing json;
BEGIN
    present := @schema@.sharding_append_v1(
        event_types, event_entities, event_seqs, event_shards, event_epochs,
        event_names, event_versions, event_payloads, event_command_ids,
        event_commands, event_replies, event_partials,
        taken, resumed, parking, repeating, repeats, repeat_dues,
        key_types, key_entities, keys,
        ids, types, shards, entities, epochs, seqs, positions,
        target_types, targets, commands, arguments, dues,
        delays, timers, everies, replies_to, on_failures,
        repeated, claim);
    WITH new AS (
        INSERT INTO @schema@.sharding_taken (id, type_id, shard, entity, epoch, journal, partial)
            SELECT m.id, m.type_id, m.shard, m.entity, m.epoch, m.journal, m.partial
            FROM (
                SELECT unnest(marks) AS id, unnest(mark_types) AS type_id, unnest(mark_shards) AS shard,
                    unnest(mark_epochs) AS epoch, unnest(mark_entities) AS entity, unnest(mark_journals) AS journal,
                    unnest(mark_partials) AS partial
            ) m
            WHERE m.id <> ALL (marks_resumed)
            ORDER BY m.id COLLATE "C"
            ON CONFLICT DO NOTHING
            RETURNING id
    )
    SELECT array_agg(new.id) INTO made FROM new;
    IF cardinality(marks_resumed) > 0 THEN
        WITH held AS (
            SELECT t.id FROM @schema@.sharding_taken t
            WHERE t.id = ANY (marks_resumed) AND t.partial ORDER BY t.id FOR UPDATE
        ), gone_on AS (
            UPDATE @schema@.sharding_taken t SET partial = m.partial
                FROM held
                JOIN (SELECT unnest(marks) AS id, unnest(mark_partials) AS partial) m ON m.id = held.id
                WHERE t.id = held.id
                RETURNING t.id
        )
        SELECT array_agg(gone_on.id) INTO kept FROM gone_on;
    END IF;
    IF cardinality(marks) <> COALESCE(cardinality(made), 0) + COALESCE(cardinality(kept), 0) THEN
        SELECT json_agg(json_build_array(w.id, CASE WHEN t.partial THEN 'partly' WHEN NOT t.partial THEN 'taken' END)
                ORDER BY w.id)
            INTO missing
            FROM (SELECT unnest(marks) AS id) w
            LEFT JOIN @schema@.sharding_taken t ON t.id = w.id
            WHERE w.id <> ALL (COALESCE(made, '{}')) AND w.id <> ALL (COALESCE(kept, '{}'));
        RAISE EXCEPTION 'sharding: % message(s) of other journals do not wait to be taken', json_array_length(missing)
            USING ERRCODE = 'SH003', DETAIL = missing::text;
    END IF;
    -- A move that brings rows here locks the table of marks meanwhile: they are there by now, or find the marks.
    DELETE FROM @schema@.sharding_message m
        WHERE m.id = ANY (ARRAY(
            SELECT w.id FROM (SELECT unnest(marks) AS id, unnest(mark_partials) AS partial) w WHERE NOT w.partial));
    RETURN present;
END
$append_marked$;
