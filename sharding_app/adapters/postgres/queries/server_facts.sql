SELECT
    current_setting('server_version_num')::integer,
    current_setting('server_version'),
    current_setting('fsync') = 'on',
    current_setting('full_page_writes') = 'on',
    current_setting('synchronous_commit'),
    current_setting('max_connections')::integer,
    current_setting('superuser_reserved_connections')::integer,
    current_setting('autovacuum') = 'on',
    current_setting('server_encoding'),
    pg_is_in_recovery(),
    (SELECT sum(numbackends)::integer FROM pg_stat_database);
