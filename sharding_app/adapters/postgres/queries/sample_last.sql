SELECT entity FROM sharding_event WHERE type_id = %(type_id)s ORDER BY entity DESC, seq DESC LIMIT 1;
