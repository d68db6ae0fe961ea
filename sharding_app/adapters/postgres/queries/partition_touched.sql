-- Ranges of rows that were written or deleted since they were copied.
WITH oldest AS MATERIALIZED (
    SELECT t.id FROM sharding_event_touched t ORDER BY t.id LIMIT %(limit)s
), taken AS (
    DELETE FROM sharding_event_touched t USING oldest WHERE t.id = oldest.id RETURNING t.type_id, t.entity, t.first, t.last
)
SELECT DISTINCT taken.type_id, taken.entity, taken.first, taken.last FROM taken;
