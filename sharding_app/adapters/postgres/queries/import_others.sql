-- The first of these entities whose events in the journal end before those that are to be put back begin. No event says that
-- the two are one history, and a life that has begun after an erasure looks the same.
SELECT format('events of %%L are there, and none of them is in the file', g.entity)
FROM unnest(%(entities)s::text[], %(firsts)s::bigint[]) AS g (entity, first)
CROSS JOIN LATERAL (
    SELECT max(e.seq) AS last FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = g.entity
) there
WHERE there.last < g.first
ORDER BY g.entity LIMIT 1;
