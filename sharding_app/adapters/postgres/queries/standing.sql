-- Rows of messages as the home of their target sees them, from another journal. One that is gone is not in the answer. The
-- last column: the shard of the row has no home here.
SELECT m.id, m.parked, greatest(extract(epoch FROM m.due - clock_timestamp()), 0)::double precision,
    s.type_id IS NOT NULL AND s.home IS NULL
FROM sharding_message m
LEFT JOIN sharding_shard s ON s.type_id = m.type_id AND s.shard = m.shard
WHERE m.id = ANY (%(messages)s::text[]);
