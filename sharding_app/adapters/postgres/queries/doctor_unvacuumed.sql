-- Tables of ours for which autovacuum is switched off.
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY (current_schemas(false)) AND c.relkind = 'r' AND starts_with(c.relname, 'sharding_')
    AND EXISTS (SELECT FROM pg_options_to_table(c.reloptions) o
        WHERE o.option_name = 'autovacuum_enabled' AND o.option_value IN ('false', 'off', 'no', '0'))
ORDER BY c.relname;
