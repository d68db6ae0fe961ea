-- The owner's home decides about a row that did not get through. The row is locked before the shard's, as an append does
-- it. A target that takes the row at the same moment is waited for: then the row is gone.
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
    SET failures = %(failures)s, due = clock_timestamp() + %(delay)s * interval '1 second', error = %(error)s,
        occasion = CASE WHEN m.every IS NOT NULL THEN COALESCE(m.occasion, m.due) END
    FROM held, home
    WHERE m.id = held.id
    RETURNING 1
)
SELECT EXISTS (SELECT FROM home), EXISTS (SELECT FROM changed);
