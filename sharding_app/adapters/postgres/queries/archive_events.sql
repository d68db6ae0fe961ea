-- All events of these entities.
SELECT e.entity, e.seq, e.name, e.version, e.payload::text, e.command_id, e.command, e.reply, e.partial,
    to_char(e.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM sharding_event e
WHERE e.type_id = %(type_id)s AND e.entity = ANY (%(entities)s::text[])
ORDER BY e.entity, e.seq;
