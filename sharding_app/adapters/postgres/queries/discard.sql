-- Takes rows for entities that store no events. The reply to a row is stored if the row was there.
WITH held AS MATERIALIZED (
    SELECT m.id
    FROM sharding_message m
    WHERE m.id = ANY (%(taken)s::text[]) AND m.due <= clock_timestamp() AND NOT m.parked
    ORDER BY m.id
    FOR UPDATE
), gone AS (
    DELETE FROM sharding_message m USING held WHERE m.id = held.id AND m.id <> ALL (%(repeating)s::text[])
), repeated AS (
    UPDATE sharding_message m
    SET id = again.id, due = again.due, failures = 0, error = '', occasion = NULL
    FROM unnest(%(repeating)s::text[], %(repeats)s::text[], %(dues)s::timestamptz[]) AS again (former, id, due)
    JOIN held ON held.id = again.former
    WHERE m.id = again.former
), replied AS (
    INSERT INTO sharding_message (
        id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due, key, every, reply_to,
        on_failure)
    SELECT r.id, r.type_id, r.shard, r.entity, r.epoch, r.seq, r.position, r.target_type, r.target, r.command, r.args,
        clock_timestamp(), NULL, NULL, r.reply_to, r.on_failure
    FROM unnest(
        %(answered)s::text[], %(ids)s::text[], %(types)s::integer[], %(shards)s::integer[], %(entities)s::text[],
        %(epochs)s::bigint[], %(seqs)s::bigint[], %(positions)s::integer[], %(target_types)s::text[],
        %(targets)s::text[], %(commands)s::text[], %(arguments)s::bytea[], %(replies_to)s::text[],
        %(on_failures)s::text[])
        AS r (answered, id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, reply_to,
            on_failure)
    JOIN held ON held.id = r.answered
)
SELECT id FROM held;
