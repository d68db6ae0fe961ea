DELETE FROM sharding_projection WHERE id = %(id)s;
