-- A row becomes a message of its owner to itself, and keeps its place in the order. As `set_aside`.
WITH held AS MATERIALIZED (
    SELECT m.id, m.type_id, m.shard
    FROM sharding_message m
    WHERE m.id = %(message)s AND m.type_id = %(type_id)s AND m.shard = %(shard)s AND NOT m.parked
    FOR UPDATE
), home AS MATERIALIZED (
    SELECT s.epoch
    FROM sharding_shard s
    WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s AND s.epoch = %(epoch)s
        AND (SELECT count(*) FROM held) >= 0
    FOR SHARE
), changed AS (
    UPDATE sharding_message m
    SET id = %(new)s, epoch = home.epoch, target_type = t.name, target = m.entity, command = %(command)s,
        args = %(args)s, due = clock_timestamp(), key = NULL, every = NULL, reply_to = NULL, on_failure = NULL,
        failures = 0, error = ''
    FROM held, home, sharding_type t
    WHERE m.id = held.id AND t.id = held.type_id
    RETURNING 1
)
SELECT EXISTS (SELECT FROM home), EXISTS (SELECT FROM changed);
