DELETE FROM sharding_change WHERE type_id = ANY (%(types)s::integer[]);
