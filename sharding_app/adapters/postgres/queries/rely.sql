-- What our statements rely upon, whatever the role or the database has been set to: commits are durable (a stricter way
-- stays), a transaction is not cut short (the setting is newer than our oldest server), and our tables are found, where
-- they were found before if that is known.
SELECT
    @durable_session@,
    CASE WHEN current_setting('transaction_timeout', true) <> '0'
        THEN set_config('transaction_timeout', '0', false) END,
    CASE WHEN place.schema IS NOT NULL
        THEN set_config('search_path', quote_ident(place.schema) || ', pg_temp', false) END,
    place.schema
FROM (
    SELECT COALESCE(
        (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relname = 'sharding_cluster' AND n.nspname = %(schema)s::text),
        (SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.oid = to_regclass('sharding_cluster'))
    )::text AS schema
) place;
