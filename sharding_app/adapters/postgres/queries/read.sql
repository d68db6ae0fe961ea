-- What each entity is rebuilt from: its newest snapshot, then the events after it, within bounds.
-- The lateral parts cannot be flattened by the planner: one index range for each entity, in its order. An entity without
-- a history has a row too, so that one that was not reached is told apart from it. Contents of more than `small` bytes, and
-- compressed ones, are left out: they are NULL, and `read_large` brings them. So the bound in rows bounds the bytes too,
-- without a sum over all rows, which costs as much as a third of the statement.
SELECT wanted.place, found.*
FROM unnest(%(entities)s::text[]) WITH ORDINALITY AS wanted (entity, place)
LEFT JOIN LATERAL (
    SELECT s.seq, s.shard, s.epoch, s.state
    FROM sharding_snapshot s
    WHERE s.type_id = %(type_id)s AND s.entity = wanted.entity
    ORDER BY s.seq DESC
    LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT ARRAY[newest.shard, newest.epoch] AS home, newest.seq, NULL::text AS name, 0 AS version,
        CASE WHEN pg_column_compression(newest.state) IS NULL AND pg_column_size(newest.state) <= %(small)s
            THEN newest.state END AS content
    WHERE newest.seq IS NOT NULL
    UNION ALL
    (SELECT NULL, e.seq, e.name, e.version,
            CASE WHEN pg_column_compression(e.payload) IS NULL AND pg_column_size(e.payload) <= %(small)s
                THEN e.payload END
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity AND e.seq > COALESCE(newest.seq, 0)
        ORDER BY e.seq
        LIMIT %(events)s)
) AS found ON true
LIMIT %(rows)s;
