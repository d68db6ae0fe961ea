-- A piece of one large entity, from its end: what is left has no gap.
WITH events AS (
    DELETE FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = %(bound)s AND e.seq > (
        SELECT kept.seq FROM sharding_event kept
        WHERE kept.type_id = %(type_id)s AND kept.entity = %(bound)s
        ORDER BY kept.seq DESC OFFSET %(rows)s LIMIT 1)
    RETURNING 1
)
SELECT (SELECT count(*) FROM events), 0, 0, 0;
