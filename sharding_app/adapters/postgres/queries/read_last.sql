-- The newest event of each entity, within bounds: one index look-up for each. One that has none has a row too.
SELECT entity, seq, name, version, payload
FROM (
    SELECT wanted.entity, last.*, sum(last.size) OVER (ROWS UNBOUNDED PRECEDING) AS total
    FROM unnest(%(entities)s::text[]) AS wanted (entity)
    LEFT JOIN LATERAL (
        SELECT e.seq, e.name, e.version, e.payload,
            CASE WHEN pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload)
                ELSE octet_length(e.payload::text) END AS size
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = wanted.entity
        ORDER BY e.seq DESC
        LIMIT 1
    ) AS last ON true
) AS read
WHERE COALESCE(total, 0) - COALESCE(size, 0) < %(bytes)s;
