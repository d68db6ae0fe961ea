-- The journals that the rows know: the place that is known of each, and how many shards lie in it.
SELECT coalesce(j.name, s.journal), coalesce(j.place, ''), coalesce(s.shards, 0)
FROM sharding_journal j
FULL JOIN (
    SELECT s.journal, count(*) AS shards
    FROM sharding_shard s
    JOIN sharding_type t ON t.id = s.type_id
    WHERE s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
    GROUP BY s.journal
) s ON s.journal = j.name
ORDER BY 1;
