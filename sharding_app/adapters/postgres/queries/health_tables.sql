-- Sizes of our tables, their dead rows and last vacuum, by the server's statistics. No table is read. A partitioned table
-- is one row: the sum of its partitions, the longest time since a vacuum, and the oldest transaction. To measure a table that
-- a session locks whole, or waits to (VACUUM FULL, ALTER TABLE), would wait for it: its size is that of its last VACUUM.
WITH locked AS MATERIALIZED (
    SELECT DISTINCT held.relation FROM pg_locks held
    WHERE held.locktype = 'relation' AND held.mode = 'AccessExclusiveLock'
        AND held.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
)
SELECT c.relname, coalesce(sum(size.of_table), 0)::bigint, coalesce(sum(size.of_indexes), 0)::bigint,
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
LEFT JOIN LATERAL (
    SELECT
        CASE WHEN is_locked THEN block * part.relpages ELSE pg_table_size(part.oid) END AS of_table,
        CASE WHEN is_locked THEN block * (
                SELECT coalesce(sum(i.relpages), 0) FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
                WHERE x.indrelid = part.oid)
            ELSE pg_indexes_size(part.oid) END AS of_indexes
    FROM (
        SELECT EXISTS (SELECT FROM locked WHERE locked.relation = part.oid) AS is_locked,
            current_setting('block_size')::bigint AS block
    ) known
) size ON true
WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND starts_with(c.relname, 'sharding_')
GROUP BY c.oid, c.relname
ORDER BY coalesce(sum(size.of_table + size.of_indexes), 0) DESC, c.relname;
