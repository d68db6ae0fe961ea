-- For each look-up of an id that a caller gave: the newest event that carries it. The comparison with `|| ''` keeps the
-- planner from the key: it cannot know how long one entity's history is. The type, named twice, makes the key dear, and still
-- says in which partition the event is.
SELECT wanted.place, found.seq, found.command, found.reply, found.partial
FROM unnest(%(types)s::integer[], %(entities)s::text[], %(command_ids)s::text[], %(ages)s::bigint[])
    WITH ORDINALITY AS wanted (type_id, entity, command_id, age_ms, place)
CROSS JOIN LATERAL (
    SELECT e.seq, e.command, e.reply, e.partial
    FROM sharding_event e
    WHERE hashtextextended(e.command_id, hashtextextended(e.entity, e.type_id))
            = hashtextextended(wanted.command_id, hashtextextended(wanted.entity, wanted.type_id))
        AND NOT starts_with(e.command_id, '?')
        AND e.type_id = ANY (ARRAY[wanted.type_id, wanted.type_id]) AND e.entity || '' = wanted.entity AND e.command_id = wanted.command_id
        AND e.at >= clock_timestamp() - wanted.age_ms * interval '1 millisecond'
    ORDER BY e.seq DESC
    LIMIT 1
) AS found;
