-- Who holds a lock of the journal's tables, besides the nodes: the oldest transactions first.
SELECT DISTINCT a.pid, coalesce(a.usename, ''), a.application_name,
    extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, clock_timestamp()))::float8
FROM pg_locks l
JOIN pg_class c ON c.oid = l.relation AND (starts_with(c.relname, 'sharding_event') OR c.relname = 'sharding_type')
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted AND l.pid <> pg_backend_pid() AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
ORDER BY 4 DESC
LIMIT 5;
