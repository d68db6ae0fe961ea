-- Times are those of UTC: Django's connection leaves a zone out where USE_TZ is False.
SELECT sized.type_id, sized.entity, sized.seq, sized.name, sized.version, sized.payload::text,
    sized.at AT TIME ZONE 'UTC'
FROM (
    SELECT e.*, span.place, pg_column_size(e.payload) AS size,
        sum(pg_column_size(e.payload)) OVER (ORDER BY span.place, e.seq ROWS UNBOUNDED PRECEDING) AS total
    FROM unnest(%(types)s::integer[], %(entities)s::text[], %(firsts)s::bigint[], %(lasts)s::bigint[], %(limits)s::integer[])
        WITH ORDINALITY AS span (type_id, entity, first, last, rows, place)
    CROSS JOIN LATERAL (
        SELECT e.type_id, e.entity, e.seq, e.name, e.version, e.payload, e.at
        FROM sharding_event e
        WHERE e.type_id = span.type_id AND e.entity = span.entity AND e.seq BETWEEN span.first AND span.last
        ORDER BY e.seq
        LIMIT span.rows
    ) e
) sized
WHERE sized.total - sized.size < %(bytes)s
ORDER BY sized.place, sized.seq;
