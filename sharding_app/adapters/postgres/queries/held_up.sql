-- Who holds up a server process, and the table of the row for which it waits, where its locks show one.
SELECT format('server process %%s (%%s), %%s', b.pid, COALESCE(NULLIF(b.application_name, ''), 'without a name'),
        COALESCE(b.state || ' for ' || round(extract(epoch FROM clock_timestamp() - b.state_change)) || ' s', 'of another role')),
    COALESCE((
        SELECT l.relation::regclass::text
        FROM pg_locks l
        WHERE l.pid = %(pid)s AND (l.locktype = 'tuple' OR (l.locktype = 'relation' AND NOT l.granted))
            AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        LIMIT 1
    ), '')
FROM unnest(pg_blocking_pids(%(pid)s)) AS p (pid)
JOIN pg_stat_activity b ON b.pid = p.pid
ORDER BY b.pid
LIMIT 1;
