DELETE FROM sharding_position WHERE projection_id = %(id)s AND first_slice = ANY (%(firsts)s::integer[]);
