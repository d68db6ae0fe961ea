-- Of the entities of these rows those with the longest recoveries: their events, and how many of them a recovery reads.
-- Each entity costs three look-ups. With the number of its type and the shard in its newest row, which tell copies.
WITH chosen AS MATERIALIZED (
    SELECT DISTINCT e.type_id, e.entity FROM sharding_event e WHERE e.ctid = ANY (%(places)s::tid[])
)
SELECT t.name, c.entity, newest.seq - first.seq + 1, newest.seq - coalesce(snapshot.seq, first.seq - 1) AS recovered,
    c.type_id, newest.shard
FROM chosen c
JOIN sharding_type t ON t.id = c.type_id AND t.kind <> 'durable_state'
CROSS JOIN LATERAL (
    SELECT e.seq FROM sharding_event e
    WHERE e.type_id = c.type_id AND e.entity = c.entity ORDER BY e.seq LIMIT 1) first
CROSS JOIN LATERAL (
    SELECT e.seq, e.shard FROM sharding_event e
    WHERE e.type_id = c.type_id AND e.entity = c.entity ORDER BY e.seq DESC LIMIT 1) newest
LEFT JOIN LATERAL (
    SELECT s.seq FROM sharding_snapshot s
    WHERE s.type_id = c.type_id AND s.entity = c.entity ORDER BY s.seq DESC LIMIT 1) snapshot ON true
ORDER BY recovered DESC, t.name, c.entity
LIMIT %(limit)s;
