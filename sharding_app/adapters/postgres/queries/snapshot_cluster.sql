-- The cluster as a whole. How many events and messages there are is known by the statistics: none is read. A journal may be
-- partitioned. Not every role may count messages.
SELECT now(), (SELECT cluster_id FROM sharding_cluster), c.term, c.incarnation, c.elected_at,
    coalesce(c.term >> 16 > c.journals_read, false),
    (SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables
        WHERE relid = 'sharding_event'::regclass
            OR relid IN (SELECT tree.relid FROM pg_partition_tree('sharding_event'::regclass) tree)),
    (SELECT n_live_tup FROM pg_stat_user_tables WHERE relid = 'sharding_message'::regclass),
    (SELECT bool_and(has_column_privilege('sharding_message', name, 'SELECT'))
        FROM unnest('{type_id,shard,epoch,parked,due,error}'::text[]) AS needed (name))
FROM (VALUES (1)) AS always (one)
LEFT JOIN sharding_coordinator c ON true;
