-- One piece: whole entities, up to the one that holds the row of that number; all of them when there are no more rows.
WITH bound AS MATERIALIZED (
    SELECT (SELECT entity FROM sharding_event WHERE type_id = %(type_id)s
        ORDER BY entity, seq OFFSET %(rows)s LIMIT 1) AS entity
), events AS (
    DELETE FROM sharding_event e USING bound
    WHERE e.type_id = %(type_id)s AND (bound.entity IS NULL OR e.entity <= bound.entity) RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot s USING bound
    WHERE s.type_id = %(type_id)s AND (bound.entity IS NULL OR s.entity <= bound.entity) RETURNING 1
), remembered AS (
    DELETE FROM sharding_remembered r USING bound
    WHERE r.type_id = %(type_id)s AND (bound.entity IS NULL OR r.entity <= bound.entity) RETURNING 1
)
SELECT
    (SELECT count(*) FROM events), (SELECT count(*) FROM snapshots),
    (SELECT count(*) FROM remembered), (SELECT entity IS NOT NULL FROM bound);
