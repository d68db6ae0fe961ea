-- The home of a shard removes marks whose rows are gone. A former home removes none: the shard's row is locked and compared
-- here, and before the marks, as appends do it.
WITH home AS MATERIALIZED (
    SELECT s.epoch
    FROM sharding_shard s
    WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s AND s.epoch = %(epoch)s
    FOR SHARE
), held AS MATERIALIZED (
    SELECT t.id
    FROM sharding_taken t
    WHERE t.id = ANY (%(messages)s::text[]) AND t.type_id = %(type_id)s AND t.shard = %(shard)s
        AND EXISTS (SELECT FROM home)
    ORDER BY t.id
    FOR UPDATE
), gone AS (
    DELETE FROM sharding_taken t USING held WHERE t.id = held.id
)
SELECT EXISTS (SELECT FROM home);
