-- What a transaction has to be that a user's writes share with an append, and which server process does it. By its name the
-- coordinator finds the connection of a process that froze before its commit. A commit is durable, whatever the default.
-- Under an assumed role the session's start is hidden: the savepoint brings that role back.
SELECT
    set_config('lock_timeout', %(lock_timeout)s, true),
    set_config('application_name', %(name)s, true),
    @durable_transaction@;
SAVEPOINT sharding_who;
SELECT set_config('role', 'none', true);
SELECT
    pg_backend_pid(),
    (SELECT to_char(a.backend_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        FROM pg_stat_activity a WHERE a.pid = pg_backend_pid()),
    server.timeline,
    server.system
FROM (SELECT @server@) AS server (started, timeline, system);
ROLLBACK TO SAVEPOINT sharding_who;
RELEASE SAVEPOINT sharding_who;
