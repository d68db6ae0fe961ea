-- The further journals in which shards of these types lie, or of all types. Rows of shards beyond the present number only
-- keep their epochs.
SELECT DISTINCT s.journal
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
WHERE s.journal <> ''
    AND s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
    AND (%(types)s::text[] IS NULL OR t.name = ANY (%(types)s::text[]))
ORDER BY s.journal;
