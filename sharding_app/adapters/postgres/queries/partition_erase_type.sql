-- A piece of a type in a former table of the journal, or in an unfinished copy of it.
DELETE FROM {table} e
USING (
    SELECT b.entity, b.seq FROM {table} b
    WHERE b.type_id = %(type_id)s
    ORDER BY b.entity, b.seq
    LIMIT %(at_most)s
) piece
WHERE e.type_id = %(type_id)s AND e.entity = piece.entity AND e.seq = piece.seq;
