-- The journals that the rows know: the place that is known of each, and how many shards lie in it.
SELECT coalesce(j.name, s.journal), coalesce(j.place, ''), coalesce(s.shards, 0)
FROM sharding_journal j
FULL JOIN (SELECT journal, count(*) AS shards FROM sharding_shard GROUP BY journal) s ON s.journal = j.name
ORDER BY 1;
