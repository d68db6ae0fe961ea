-- Rows of messages as the home of their target sees them, from another journal. One that is gone is not in the answer.
SELECT m.id, m.parked, greatest(extract(epoch FROM m.due - clock_timestamp()), 0)::double precision
FROM sharding_message m
WHERE m.id = ANY (%(messages)s::text[]);
