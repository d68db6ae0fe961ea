UPDATE sharding_following SET lost = true WHERE projection_id = %(id)s AND journal = %(journal)s AND NOT lost;
