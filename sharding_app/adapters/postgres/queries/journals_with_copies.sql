-- The further journals in which shards of these types lie, or of all types, or in which a move has made a copy of some.
SELECT s.journal
FROM sharding_shard s
WHERE s.journal <> ''
    AND (%(types)s::text[] IS NULL
        OR s.type_id IN (SELECT t.id FROM sharding_type t WHERE t.name = ANY (%(types)s::text[])))
UNION
SELECT place.journal
FROM sharding_move m
CROSS JOIN LATERAL (VALUES (m.source), (m.target)) place (journal)
WHERE place.journal <> ''
    AND (%(types)s::text[] IS NULL
        OR m.type_id IN (SELECT t.id FROM sharding_type t WHERE t.name = ANY (%(types)s::text[])))
ORDER BY 1;
