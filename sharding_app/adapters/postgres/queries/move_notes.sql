-- Takes the oldest notes of rows of a type that were written or deleted since their copy. One row for each note, also where
-- several are alike: the caller sees by their number whether there may be more.
WITH oldest AS MATERIALIZED (
    SELECT t.id FROM sharding_moving_touched t WHERE t.type_id = %(type_id)s ORDER BY t.id LIMIT %(limit)s
)
DELETE FROM sharding_moving_touched t USING oldest WHERE t.id = oldest.id RETURNING t.entity, t.first, t.last, t.shard;
