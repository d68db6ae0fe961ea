-- A page of a type's events, after a key and up to an entity. A time that is not finite, or before our era, is in the words of the server.
SELECT e.entity, e.seq, e.name, e.version, e.payload::text, e.command_id, e.command, e.reply, e.partial,
    coalesce(CASE WHEN e.at >= '0001-01-01Z' THEN to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') END, e.at::text), e.shard
FROM sharding_event e
WHERE e.type_id = %(type_id)s AND (e.entity, e.seq) > (%(entity)s, %(seq)s) AND e.entity <= %(upto)s
ORDER BY e.entity, e.seq
LIMIT %(limit)s;
