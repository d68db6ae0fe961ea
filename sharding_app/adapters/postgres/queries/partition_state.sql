-- How the journal's table stands: is it partitioned, is a copy of it under way, is a former table left, whose is it.
SELECT c.relkind = 'p', to_regclass('sharding_partitioning') IS NOT NULL, to_regclass('sharding_event_before') IS NOT NULL,
    n.nspname, pg_get_userbyid(c.relowner), current_user = pg_get_userbyid(c.relowner),
    pg_has_role(c.relowner, 'MEMBER'), has_schema_privilege(c.relowner, n.oid, 'CREATE')
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass('sharding_event');
