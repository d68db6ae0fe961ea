-- Whether this role may read how far projections have come.
SELECT bool_and(has_table_privilege(name, 'SELECT')) AND has_function_privilege('pg_control_system()', 'EXECUTE')
FROM unnest('{sharding_projection,sharding_position,sharding_change,sharding_held,sharding_following,sharding_type}'::text[]) AS needed (name);
