-- The owner's home leaves a row to an operator, after its last failure. As `set_aside`.
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
    SET parked = true, failures = m.failures + 1, error = %(error)s
    FROM held, home
    WHERE m.id = held.id
    RETURNING 1
)
SELECT EXISTS (SELECT FROM home), EXISTS (SELECT FROM changed);
