-- A piece of an entity in a copy that its shard has left behind, from its end; without shards all of its rows are in the copy.
-- Projections learn nothing of it here: the journal in which the entity lies tells them.
WITH bound AS MATERIALIZED (
    SELECT (
        SELECT e.seq FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
            AND (%(shards)s::integer[] IS NULL OR e.shard = ANY (%(shards)s::integer[]))
        ORDER BY e.seq DESC OFFSET %(at_most)s LIMIT 1) AS seq
), events AS (
    DELETE FROM sharding_event e USING bound
    WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND e.seq > coalesce(bound.seq, 0)
        AND (%(shards)s::integer[] IS NULL OR e.shard = ANY (%(shards)s::integer[]))
    RETURNING 1
), snapshots AS (
    DELETE FROM sharding_snapshot s USING bound
    WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s AND bound.seq IS NULL
        AND (%(shards)s::integer[] IS NULL OR s.shard = ANY (%(shards)s::integer[]))
    RETURNING 1
)
SELECT (SELECT count(*) FROM events), (SELECT count(*) FROM snapshots), bound.seq IS NULL FROM bound;
