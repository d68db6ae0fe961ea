-- Removes remembered ids, messages and timers of some types in a further journal. Their shards stand there at later epochs.
WITH remembered AS (
    DELETE FROM sharding_remembered WHERE type_id = ANY (%(type_ids)s::integer[]) RETURNING 1
), messages AS (
    DELETE FROM sharding_message WHERE type_id = ANY (%(type_ids)s::integer[]) RETURNING 1
)
SELECT (SELECT count(*) FROM remembered), (SELECT count(*) FROM messages);
