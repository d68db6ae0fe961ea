SELECT t.id FROM sharding_type t WHERE t.id = ANY (%(types)s::integer[]) ORDER BY t.id FOR UPDATE;
