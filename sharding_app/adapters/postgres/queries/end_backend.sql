-- Ends one server process of ours, known by pid and start; a row comes back for as long as it is there. One whose start
-- is hidden from us may be it if it bears our name: that is an error (we may not end it either), and not an end. Any other
-- one has the number by chance, as after a failover: numbers are small, and each server has its own.
SELECT pg_terminate_backend(a.pid)
FROM pg_stat_activity a
WHERE a.pid = %(pid)s AND (
    a.backend_start = %(started)s::timestamptz
    OR (a.backend_start IS NULL AND starts_with(a.application_name, 'sharding/')));
