INSERT INTO sharding_filled (projection_id, journal, type_id, first_slice, last_slice, upto, view)
VALUES (%(id)s, %(journal)s, %(type_id)s, %(first)s, %(last)s, %(upto)s, %(view)s::pg_snapshot);
