-- A piece of an entity in a former table of the journal, or in an unfinished copy of it.
DELETE FROM {table} e
WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND e.seq > coalesce((
    SELECT kept.seq FROM {table} kept
    WHERE kept.type_id = %(type_id)s AND kept.entity = %(entity)s
    ORDER BY kept.seq DESC OFFSET %(at_most)s LIMIT 1), 0);
