-- Ends one server process of ours, known by pid and start; a row comes back for as long as it is there. One whose start
-- is hidden from us may be it: that is an error (we may not end it either), and not an end.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE a.pid = %(pid)s AND (a.backend_start = %(started)s::timestamptz OR a.backend_start IS NULL);
