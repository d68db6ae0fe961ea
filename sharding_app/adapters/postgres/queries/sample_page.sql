-- The journal's page at that distance from its end.
SELECT greatest(0, pg_relation_size('sharding_event') / current_setting('block_size')::bigint - %(pages)s);
