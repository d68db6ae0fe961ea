-- Which of these entities still have this event: their history is in the journal, and goes on there.
SELECT e.entity
FROM unnest(%(entities)s::text[], %(seqs)s::bigint[], %(ats)s::timestamptz[]) AS wanted (entity, seq, at)
JOIN sharding_event e
    ON e.type_id = %(type_id)s AND e.entity = wanted.entity AND e.seq = wanted.seq AND e.at = wanted.at;
