-- A change of the journal's layout that was begun: is its copy there or the former table, and does the command run. Is the
-- journal one table.
SELECT to_regclass('sharding_event_touched') IS NOT NULL, to_regclass('sharding_event_before') IS NOT NULL,
    EXISTS (SELECT FROM pg_stat_activity a
        WHERE a.datname = current_database() AND a.application_name = 'sharding//partitioning'),
    EXISTS (SELECT FROM pg_class c WHERE c.oid = to_regclass('sharding_event') AND c.relkind = 'r');
