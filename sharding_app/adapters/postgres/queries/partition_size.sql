SELECT coalesce(
    (SELECT sum(pg_total_relation_size(tree.relid)) FROM pg_partition_tree(to_regclass('sharding_event')) tree WHERE tree.isleaf),
    pg_total_relation_size(to_regclass('sharding_event')), 0)::bigint;
