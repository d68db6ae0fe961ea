-- A piece of whole entities: all below this one, with their snapshots.
WITH events AS (
    DELETE FROM sharding_event WHERE type_id = %(type_id)s AND entity >= %(after)s AND entity < %(bound)s RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot WHERE type_id = %(type_id)s AND entity < %(bound)s RETURNING 1
)
SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM snapshots), 0, 0;
