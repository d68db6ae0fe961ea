-- Who am I to the server. Commits of ours are durable, whatever the server's or the role's default;
-- a stricter one stays.
SELECT
    a.pid,
    to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
        THEN set_config('synchronous_commit', 'on', false) END
FROM pg_stat_activity a
WHERE a.pid = pg_backend_pid();
