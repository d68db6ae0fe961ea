-- The further journals in which shards of these types lie, or of all types.
SELECT DISTINCT s.journal
FROM sharding_shard s
WHERE s.journal <> ''
    AND (%(types)s::text[] IS NULL
        OR s.type_id IN (SELECT t.id FROM sharding_type t WHERE t.name = ANY (%(types)s::text[])))
ORDER BY s.journal;
