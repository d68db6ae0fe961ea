-- What a journal's database says of itself: its place, whose it is, events by the statistics, and the size of our tables.
SELECT (SELECT system_identifier FROM pg_control_system())::text
        || '/' || (SELECT oid FROM pg_database WHERE datname = current_database())::text,
    (SELECT c.cluster_id FROM sharding_cluster c), (SELECT c.origin FROM sharding_cluster c),
    (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables
        WHERE relid = 'sharding_event'::regclass
            OR relid IN (SELECT tree.relid FROM pg_partition_tree('sharding_event'::regclass) tree)),
    (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind = 'r' AND starts_with(c.relname, 'sharding_')),
    (SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = 'sharding_message'::regclass);
