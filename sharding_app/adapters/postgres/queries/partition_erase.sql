-- A piece of an entity in the journal's former table.
DELETE FROM sharding_event_before e
WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND e.seq > coalesce((
    SELECT kept.seq FROM sharding_event_before kept
    WHERE kept.type_id = %(type_id)s AND kept.entity = %(entity)s
    ORDER BY kept.seq DESC OFFSET %(at_most)s LIMIT 1), 0);
