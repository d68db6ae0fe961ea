DELETE FROM sharding_held
WHERE projection_id = %(id)s AND type_id = %(type_id)s AND entity = %(entity)s;
