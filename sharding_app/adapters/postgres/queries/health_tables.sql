-- Sizes of our tables, their dead rows and last vacuum, by the server's statistics. No table is read. A partitioned table
-- is one row: the sum of its partitions, the longest time since a vacuum, and the oldest transaction.
SELECT c.relname, coalesce(sum(pg_table_size(part.oid)), 0)::bigint, coalesce(sum(pg_indexes_size(part.oid)), 0)::bigint,
    coalesce(sum(s.n_live_tup), 0)::bigint, coalesce(sum(s.n_dead_tup), 0)::bigint,
    CASE WHEN bool_and(greatest(s.last_vacuum, s.last_autovacuum) IS NOT NULL)
        THEN max(extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum)))::float8 END,
    coalesce(max(age(part.relfrozenxid)), 0), count(part.oid) FILTER (WHERE c.relkind = 'p')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
    SELECT c.oid WHERE c.relkind = 'r'
    UNION ALL
    SELECT tree.relid FROM pg_partition_tree(c.oid) tree WHERE c.relkind = 'p' AND tree.isleaf
) own (oid) ON true
LEFT JOIN pg_class part ON part.oid = own.oid
LEFT JOIN pg_stat_user_tables s ON s.relid = part.oid
WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND starts_with(c.relname, 'sharding_')
GROUP BY c.oid, c.relname
ORDER BY coalesce(sum(pg_table_size(part.oid) + pg_indexes_size(part.oid)), 0) DESC, c.relname;
