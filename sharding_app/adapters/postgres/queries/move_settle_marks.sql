-- Messages that have just come to this journal, or whose target has: those that a mark says to have taken effect here go, and
-- those that took effect partly are left to an operator. The table of marks is locked: no mark is on its way.
WITH marked AS MATERIALIZED (
    SELECT t.id, t.partial
    FROM sharding_taken t
    JOIN sharding_message m ON m.id = t.id
    WHERE (m.type_id = %(type_id)s AND m.shard = ANY (%(shards)s::integer[]))
        OR (t.type_id = %(type_id)s AND t.shard = ANY (%(shards)s::integer[]))
), gone AS (
    DELETE FROM sharding_message m USING marked WHERE m.id = marked.id AND NOT marked.partial
)
UPDATE sharding_message m SET parked = true, failures = m.failures + 1, error = %(partly)s
FROM marked WHERE m.id = marked.id AND marked.partial AND NOT m.parked;
