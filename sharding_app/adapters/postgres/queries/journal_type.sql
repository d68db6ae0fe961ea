SELECT id FROM sharding_type WHERE name = %(type)s;
