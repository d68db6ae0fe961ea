-- Numbers and names of some types, or of all.
SELECT t.id, t.name FROM sharding_type t WHERE %(types)s::text[] IS NULL OR t.name = ANY (%(types)s::text[]) ORDER BY t.id;
