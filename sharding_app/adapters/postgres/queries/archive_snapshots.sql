-- All snapshots of these entities.
SELECT p.entity, p.seq, p.state::text, to_char(p.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM sharding_snapshot p
WHERE p.type_id = %(type_id)s AND p.entity = ANY (%(entities)s::text[])
ORDER BY p.entity, p.seq;
