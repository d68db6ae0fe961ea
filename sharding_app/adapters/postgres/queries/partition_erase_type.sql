-- A piece of a type in the journal's former table.
DELETE FROM sharding_event_before e
USING (
    SELECT b.entity, b.seq FROM sharding_event_before b
    WHERE b.type_id = %(type_id)s
    ORDER BY b.entity, b.seq
    LIMIT %(at_most)s
) piece
WHERE e.type_id = %(type_id)s AND e.entity = piece.entity AND e.seq = piece.seq;
