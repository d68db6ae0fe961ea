-- For each follower the number and the time of the entity's last event, and a page of events from the one that the follower has
-- last: of that one only its time is needed. Pages are bounded in rows and bytes; an entity without events has a row too.
SELECT wanted.place, COALESCE(newest.seq, 0) AS last, newest.at AS newest, page.*
FROM unnest(%(types)s::int[], %(entities)s::text[], %(froms)s::bigint[], %(limits)s::int[])
    WITH ORDINALITY AS wanted (type_id, entity, since, rows, place)
LEFT JOIN LATERAL (
    SELECT e.seq, e.at
    FROM sharding_event e
    WHERE e.type_id = wanted.type_id AND e.entity = wanted.entity
    ORDER BY e.seq DESC
    LIMIT 1
) AS newest ON true
LEFT JOIN LATERAL (
    SELECT bounded.seq, bounded.name, bounded.version, bounded.payload, bounded.at
    FROM (
        SELECT found.*, sum(found.size) OVER (ORDER BY found.seq ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT e.seq, e.name, e.version, CASE WHEN e.seq > wanted.since THEN e.payload END AS payload, e.at,
                CASE WHEN e.seq = wanted.since THEN 0
                    WHEN pg_column_compression(e.payload) IS NULL THEN pg_column_size(e.payload)
                    ELSE octet_length(e.payload::text) END AS size
            FROM sharding_event e
            WHERE e.type_id = wanted.type_id AND e.entity = wanted.entity AND e.seq >= wanted.since
            ORDER BY e.seq
            LIMIT wanted.rows
        ) AS found
    ) AS bounded
    WHERE bounded.total - bounded.size < %(bytes)s
) AS page ON wanted.rows > 0
ORDER BY wanted.place, page.seq;
