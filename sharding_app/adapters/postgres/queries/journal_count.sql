SELECT
    (SELECT count(*) FROM sharding_event WHERE type_id = %(type_id)s),
    (SELECT count(*) FROM sharding_snapshot WHERE type_id = %(type_id)s),
    (SELECT count(*) FROM sharding_remembered WHERE type_id = %(type_id)s),
    (SELECT count(*) FROM sharding_message WHERE type_id = %(type_id)s);
