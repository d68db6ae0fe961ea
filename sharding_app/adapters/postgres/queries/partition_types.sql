-- Each type that is known or has events: its number, its name, the tables of its partition and their size. No row is read.
WITH RECURSIVE stored (number) AS (
    (SELECT e.type_id FROM sharding_event e ORDER BY e.type_id LIMIT 1)
    UNION ALL
    SELECT next.type_id
    FROM stored
    CROSS JOIN LATERAL (
        SELECT e.type_id FROM sharding_event e WHERE e.type_id > stored.number ORDER BY e.type_id LIMIT 1
    ) next
)
SELECT t.number, coalesce(t.name, ''), coalesce(p.tables, 0), coalesce(p.bytes, 0), coalesce(p.rows, 0)
FROM (
    SELECT coalesce(k.id, s.number) AS number, k.name FROM sharding_type k FULL JOIN stored s ON s.number = k.id
) t
LEFT JOIN LATERAL (
    SELECT count(*) AS tables, sum(pg_total_relation_size(l.relid))::bigint AS bytes, sum(u.n_live_tup)::bigint AS rows
    FROM pg_inherits i
    CROSS JOIN LATERAL pg_partition_tree(i.inhrelid) l
    LEFT JOIN pg_stat_user_tables u ON u.relid = l.relid
    WHERE i.inhparent = to_regclass('sharding_event') AND i.inhrelid = to_regclass('sharding_event_' || t.number) AND l.isleaf
) p ON true
ORDER BY t.number;
