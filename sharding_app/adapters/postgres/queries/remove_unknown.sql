SELECT wanted.name FROM unnest(%(types)s::text[]) AS wanted (name)
WHERE NOT EXISTS (SELECT FROM sharding_type t WHERE t.name = wanted.name);
