-- Sizes of our tables, their dead rows and last vacuum, by the server's statistics. No table is read.
SELECT c.relname, pg_table_size(c.oid), pg_indexes_size(c.oid), s.n_live_tup, s.n_dead_tup,
    extract(epoch FROM clock_timestamp() - greatest(s.last_vacuum, s.last_autovacuum))::float8,
    age(c.relfrozenxid)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_stat_user_tables s ON s.relid = c.oid
WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind = 'r' AND starts_with(c.relname, 'sharding_')
ORDER BY pg_table_size(c.oid) + pg_indexes_size(c.oid) DESC, c.relname;
