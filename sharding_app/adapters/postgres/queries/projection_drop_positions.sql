DELETE FROM sharding_position WHERE projection_id = %(id)s AND journal = %(journal)s AND first_slice = ANY (%(firsts)s::integer[]);
