-- The next piece of the journal, in the order of its key, and how far the copy has come. Rows that were written since the copy
-- began may be there already.
WITH piece AS MATERIALIZED (
    SELECT e.* FROM sharding_partitioning p
    CROSS JOIN LATERAL (
        SELECT e.* FROM sharding_event e
        WHERE (e.type_id, e.entity, e.seq) > (p.after_type, p.after_entity, p.after_seq) AND e.type_id <= p.last_type
        ORDER BY e.type_id, e.entity, e.seq
        LIMIT %(rows)s
    ) e
), put AS (
    INSERT INTO sharding_event_next SELECT * FROM piece ON CONFLICT DO NOTHING
), ends AS (
    SELECT type_id, entity, seq FROM piece ORDER BY type_id DESC, entity DESC, seq DESC LIMIT 1
), counted AS (
    SELECT count(*) AS rows FROM piece
)
UPDATE sharding_partitioning p
SET after_type = coalesce(ends.type_id, p.after_type), after_entity = coalesce(ends.entity, p.after_entity),
    after_seq = coalesce(ends.seq, p.after_seq), copied = p.copied + counted.rows, filled = counted.rows < %(rows)s
FROM counted LEFT JOIN ends ON true
RETURNING p.copied, p.filled;
