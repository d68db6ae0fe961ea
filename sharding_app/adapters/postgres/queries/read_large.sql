-- `read` for contents of any size. The sum of their sizes runs over the rows as they come and needs no sort. What is
-- compressed counts as what it will be.
SELECT place, home, seq, name, version, content
FROM (
    SELECT wanted.place, found.*, sum(found.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
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
            newest.state AS content,
            CASE WHEN pg_column_compression(newest.state) IS NULL THEN pg_column_size(newest.state)
                ELSE octet_length(newest.state::text) END AS size
        WHERE newest.seq IS NOT NULL
        UNION ALL
        (SELECT NULL, e.seq, e.name, e.version, e.payload,
                CASE WHEN pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload)
                    ELSE octet_length(e.payload::text) END
            FROM sharding_event e
            WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity AND e.seq > COALESCE(newest.seq, 0)
            ORDER BY e.seq
            LIMIT %(events)s)
    ) AS found ON true
    LIMIT %(rows)s
) AS read
WHERE COALESCE(total, 0) - COALESCE(size, 0) < %(bytes)s;
