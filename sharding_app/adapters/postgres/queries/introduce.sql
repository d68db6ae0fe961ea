-- Who am I to the server, and may I end what is mine? Asked as the role that has logged in: under an assumed one the
-- session's start is hidden. The role comes back with the end of these statements' common transaction.
SELECT set_config('role', 'none', true);
SELECT
    pg_backend_pid(),
    (SELECT to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),
    has_function_privilege('pg_terminate_backend(integer, bigint)', 'EXECUTE'),
    session_user::text,
    server.timeline,
    server.system
FROM (SELECT @server@) AS server (started, timeline, system);
