-- The journal's page that is so many before its end.
SELECT greatest(0, pg_relation_size('sharding_event') / current_setting('block_size')::bigint - %(pages)s);
