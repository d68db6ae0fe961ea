-- The newest event of each entity: one index look-up for each.
SELECT wanted.entity, last.seq, last.name, last.version, last.payload
FROM unnest(%(entities)s::text[]) AS wanted (entity)
CROSS JOIN LATERAL (
    SELECT e.seq, e.name, e.version, e.payload
    FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity
    ORDER BY e.seq DESC
    LIMIT 1
) AS last;
