-- The numbers of a type's shards, by the coordinator's row.
SELECT t.number_of_shards, t.shards_wanted, t.groups_resized, t.shards_revision FROM sharding_type t WHERE t.id = %(type_id)s;
