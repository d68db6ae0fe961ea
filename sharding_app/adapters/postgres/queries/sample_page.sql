-- The page at that distance from the end of the journal, or of the largest of its partitions: those of a type, or all.
SELECT greatest(0, coalesce(
    (
        SELECT max(pg_relation_size(tree.relid))
        FROM pg_partition_tree(coalesce(to_regclass('sharding_event_' || %(type_id)s::integer), to_regclass('sharding_event'))) tree
        WHERE tree.isleaf),
    pg_relation_size('sharding_event')) / current_setting('block_size')::bigint - %(pages)s);
