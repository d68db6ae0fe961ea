SELECT version FROM sharding_projection WHERE name = %(name)s AND live ORDER BY version DESC LIMIT 1;
