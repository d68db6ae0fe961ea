-- What each entity is rebuilt from: its newest snapshot, then the events after it, within bounds.
-- The lateral part is a union, which the planner cannot flatten: one index range for each entity, in its order. An entity
-- without a history has a row too, so that one that was not reached is told apart from it. The sum runs over the rows as
-- they come and needs no sort. What is compressed counts as what it will be.
SELECT place, is_snapshot, seq, shard, epoch, name, version, content
FROM (
    SELECT wanted.place, found.*, sum(found.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
    FROM unnest(%(entities)s::text[]) WITH ORDINALITY AS wanted (entity, place)
    LEFT JOIN LATERAL (
        (SELECT true AS is_snapshot, s.seq, s.shard, s.epoch, NULL::text AS name, 0 AS version, s.state AS content,
                CASE WHEN pg_column_compression(s.state) IS NULL THEN pg_column_size(s.state)
                    ELSE octet_length(s.state::text) END AS size
            FROM sharding_snapshot s
            WHERE s.type_id = %(type_id)s AND s.entity = wanted.entity
            ORDER BY s.seq DESC
            LIMIT 1)
        UNION ALL
        (SELECT false, e.seq, NULL, NULL, e.name, e.version, e.payload,
                CASE WHEN pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload)
                    ELSE octet_length(e.payload::text) END
            FROM sharding_event e
            WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity AND e.seq > COALESCE(
                (SELECT max(s.seq) FROM sharding_snapshot s
                    WHERE s.type_id = %(type_id)s AND s.entity = wanted.entity), 0)
            ORDER BY e.seq
            LIMIT %(events)s)
    ) AS found ON true
    LIMIT %(rows)s
) AS read
WHERE COALESCE(total, 0) - COALESCE(size, 0) < %(bytes)s;
