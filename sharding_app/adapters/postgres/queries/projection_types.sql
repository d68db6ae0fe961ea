SELECT t.id, t.name FROM sharding_type t WHERE t.name = ANY (%(names)s::text[]);
