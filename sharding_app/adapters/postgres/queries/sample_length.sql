-- How many events a recovery reads: those after the last snapshot.
SELECT coalesce((SELECT max(seq) FROM sharding_event WHERE type_id = %(type_id)s AND entity = %(entity)s), 0)
    - coalesce((SELECT max(seq) FROM sharding_snapshot WHERE type_id = %(type_id)s AND entity = %(entity)s), 0);
