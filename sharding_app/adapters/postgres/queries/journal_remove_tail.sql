-- A piece of one large entity, from its end: what is left has no gap, and no snapshot beyond it.
WITH bound AS MATERIALIZED (
    SELECT kept.seq FROM sharding_event kept
    WHERE kept.type_id = %(type_id)s AND kept.entity = %(bound)s
    ORDER BY kept.seq DESC OFFSET %(rows)s LIMIT 1
), events AS (
    DELETE FROM sharding_event e USING bound
    WHERE e.type_id = %(type_id)s AND e.entity = %(bound)s AND e.seq > bound.seq
    RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot s USING bound
    WHERE s.type_id = %(type_id)s AND s.entity = %(bound)s AND s.seq > bound.seq
    RETURNING 1
)
SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM snapshots), 0, 0;
