-- The oldest transaction number of the database, the age at which autovacuum freezes by force, and bytes of write-ahead log.
SELECT age(d.datfrozenxid), current_setting('autovacuum_freeze_max_age')::bigint,
    CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') END::bigint
FROM pg_database d
WHERE d.datname = current_database();
