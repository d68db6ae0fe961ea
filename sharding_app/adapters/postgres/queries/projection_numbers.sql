SELECT t.id, t.name, t.number_of_shards, t.shards_wanted, t.groups_resized, t.shards_revision
FROM sharding_type t WHERE t.id = ANY (%(types)s::integer[]) ORDER BY t.id;
