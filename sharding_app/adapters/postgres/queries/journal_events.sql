SELECT count(*) FROM sharding_event WHERE type_id = %(type_id)s;
