-- The first of these events before which the journal has neither an event nor a snapshot that covers what is missing.
SELECT format('event %%s of %%L follows no event and no snapshot', g.seq, g.entity)
FROM (SELECT unnest(%(entities)s::text[]) AS entity, unnest(%(seqs)s::bigint[]) AS seq) g
WHERE g.seq > 1
    AND NOT EXISTS (SELECT FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = g.entity AND e.seq = g.seq - 1)
    AND NOT EXISTS (SELECT FROM sharding_snapshot p
        WHERE p.type_id = %(type_id)s AND p.entity = g.entity AND p.seq >= g.seq - 1)
ORDER BY g.entity, g.seq LIMIT 1;
