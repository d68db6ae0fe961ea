-- A page of a type's snapshots, after a key and up to an entity.
SELECT p.entity, p.seq, p.state::text, to_char(p.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), p.shard
FROM sharding_snapshot p
WHERE p.type_id = %(type_id)s AND (p.entity, p.seq) > (%(entity)s, %(seq)s) AND p.entity <= %(upto)s
ORDER BY p.entity, p.seq
LIMIT %(limit)s;
