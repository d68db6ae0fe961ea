-- The further journals in which shards of these types lie, or of all types, or in which a move has made a copy of some. See
-- journals_used.sql.
SELECT s.journal
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.journal <> ''
    AND s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
    AND (%(types)s::text[] IS NULL OR t.name = ANY (%(types)s::text[]))
UNION
SELECT place.journal
FROM sharding_move m
CROSS JOIN LATERAL (VALUES (m.source), (m.target)) place (journal)
WHERE place.journal <> ''
    AND (%(types)s::text[] IS NULL
        OR m.type_id IN (SELECT t.id FROM sharding_type t WHERE t.name = ANY (%(types)s::text[])))
ORDER BY 1;
