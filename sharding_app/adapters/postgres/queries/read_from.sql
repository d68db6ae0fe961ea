SELECT seq, name, version, payload
FROM (
    SELECT page.*, sum(page.size) OVER (ORDER BY page.seq ROWS UNBOUNDED PRECEDING) AS total
    FROM (
        SELECT e.seq, e.name, e.version, e.payload,
            CASE WHEN pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload)
                ELSE octet_length(e.payload::text) END AS size
        FROM sharding_event e
        WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND e.seq > %(after)s
        ORDER BY e.seq
        LIMIT %(events)s
    ) AS page
) AS read
WHERE total - size < %(bytes)s
ORDER BY seq;
