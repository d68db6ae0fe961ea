SELECT DISTINCT entity FROM sharding_event WHERE ctid = ANY (%(places)s::tid[]) AND type_id = %(type_id)s LIMIT %(rows)s;
