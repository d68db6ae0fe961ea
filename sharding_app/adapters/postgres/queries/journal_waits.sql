-- The numbers of remembered ids, and of messages and timers, of some types.
SELECT
    (SELECT count(*) FROM sharding_remembered WHERE type_id = ANY (%(type_ids)s::integer[])),
    (SELECT count(*) FROM sharding_message WHERE type_id = ANY (%(type_ids)s::integer[]));
