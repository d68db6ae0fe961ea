-- What is agreed with a further journal: its server, and the transaction there with which the positions began.
SELECT f.server, f.began::text::bigint FROM sharding_following f WHERE f.projection_id = %(id)s AND f.journal = %(journal)s;
