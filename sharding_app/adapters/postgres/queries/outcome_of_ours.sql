-- The same for ids of our own, which an asking process gave when it had to send a command again: a moment ago. Back from the
-- entity's newest event to the first one that is too old, and no further.
SELECT wanted.place, found.seq, found.command, found.reply, found.partial
FROM unnest(%(types)s::integer[], %(entities)s::text[], %(command_ids)s::text[], %(ages)s::bigint[])
    WITH ORDINALITY AS wanted (type_id, entity, command_id, age_ms, place)
CROSS JOIN LATERAL (
    SELECT e.seq, e.command, e.reply, e.partial
    FROM sharding_event e
    WHERE e.type_id = wanted.type_id AND e.entity = wanted.entity AND e.command_id = wanted.command_id
        AND e.seq > COALESCE((
            SELECT older.seq FROM sharding_event older
            WHERE older.type_id = wanted.type_id AND older.entity = wanted.entity
                AND older.at < clock_timestamp() - wanted.age_ms * interval '1 millisecond'
            ORDER BY older.seq DESC LIMIT 1), 0)
    ORDER BY e.seq DESC
    LIMIT 1
) AS found;
