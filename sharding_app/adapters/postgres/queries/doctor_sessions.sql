-- Sessions of clients, how long their transactions are open, and which locks of theirs may hold up our writers.
WITH locks AS MATERIALIZED (
    SELECT l.pid, string_agg(DISTINCT c.relname, ', ') AS tables
    FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
    WHERE l.locktype = 'relation' AND l.granted AND starts_with(c.relname, 'sharding_')
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.mode <> 'AccessShareLock'
        AND (c.relname IN ('sharding_shard', 'sharding_node', 'sharding_coordinator')
            OR l.mode NOT IN ('RowShareLock', 'RowExclusiveLock', 'ShareUpdateExclusiveLock'))
    GROUP BY l.pid
)
SELECT a.pid, coalesce(application_name, ''), coalesce(usename, ''), coalesce(state, ''),
    extract(epoch FROM clock_timestamp() - xact_start)::float8,
    backend_xmin IS NOT NULL AND datname = current_database(), coalesce(locks.tables, '')
FROM pg_stat_activity a LEFT JOIN locks ON locks.pid = a.pid
-- A role without pg_monitor sees neither kind nor state of other roles' sessions. Autovacuum has no user, and a sender of the
-- log no database.
WHERE (a.backend_type = 'client backend' OR a.backend_type IS NULL AND a.datid IS NOT NULL AND a.usesysid IS NOT NULL)
    AND a.pid <> pg_backend_pid();
