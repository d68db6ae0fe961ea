-- Sessions of this database that wait for a lock, each with one that holds it up.
SELECT w.pid, coalesce(w.application_name, ''), coalesce(w.usename, ''),
    extract(epoch FROM clock_timestamp() - (SELECT min(l.waitstart) FROM pg_locks l WHERE l.pid = w.pid AND NOT l.granted))::float8,
    coalesce((SELECT string_agg(DISTINCT c.relname, ', ')
        FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
        WHERE l.pid = w.pid AND l.locktype IN ('relation', 'tuple') AND starts_with(c.relname, 'sharding_')
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())), ''),
    b.pid, coalesce(b.application_name, ''), coalesce(b.usename, ''), coalesce(b.state, ''),
    extract(epoch FROM clock_timestamp() - b.xact_start)::float8
FROM pg_stat_activity w
CROSS JOIN LATERAL (SELECT p.pid FROM unnest(pg_blocking_pids(w.pid)) AS p (pid) ORDER BY p.pid LIMIT 1) AS holder
LEFT JOIN pg_stat_activity b ON b.pid = holder.pid
WHERE w.datname = current_database() AND w.wait_event_type = 'Lock'
ORDER BY 4 DESC NULLS LAST, w.pid
LIMIT %(limit)s;
