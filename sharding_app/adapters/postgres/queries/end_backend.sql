-- Ends one server process of ours, known by pid and start; a row comes back for as long as it is there.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE a.pid = %(pid)s AND a.backend_start = %(started)s::timestamptz;
