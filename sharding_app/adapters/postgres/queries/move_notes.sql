-- Takes the oldest notes of rows of a type that were written or deleted since their copy.
WITH oldest AS MATERIALIZED (
    SELECT t.id FROM sharding_moving_touched t WHERE t.type_id = %(type_id)s ORDER BY t.id LIMIT %(limit)s
), taken AS (
    DELETE FROM sharding_moving_touched t USING oldest WHERE t.id = oldest.id RETURNING t.entity, t.first, t.last, t.shard
)
SELECT DISTINCT taken.entity, taken.first, taken.last, taken.shard FROM taken;
