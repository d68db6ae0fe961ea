-- All snapshots of these entities. A time that is not finite, or before our era, is in the words of the server.
SELECT p.entity, p.seq, p.state::text,
    coalesce(CASE WHEN p.at >= '0001-01-01Z' THEN to_char(p.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END, p.at::text)
FROM sharding_snapshot p
WHERE p.type_id = %(type_id)s AND p.entity = ANY (%(entities)s::text[])
ORDER BY p.entity, p.seq;
