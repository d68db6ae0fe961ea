-- The first of these events in whose place the journal has another one. As in import_events.sql, and nothing is stored.
-- Of a former value of a durable state the payload may be forgotten, here or in the file (forget_states.sql).
SELECT format('event %%s of %%L is another one there', g.seq, g.entity)
FROM unnest(
    %(entities)s::text[], %(seqs)s::bigint[], %(names)s::text[], %(versions)s::integer[], %(payloads)s::text[],
    %(command_ids)s::text[], %(commands)s::text[], %(replies)s::bytea[], %(partials)s::boolean[])
    AS g (entity, seq, name, version, payload, command_id, command, reply, partial)
JOIN sharding_event e ON e.type_id = %(type_id)s AND e.entity = g.entity AND e.seq = g.seq
JOIN sharding_type t ON t.id = e.type_id
WHERE (e.name, e.version, e.command_id, e.command, e.reply, e.partial)
        IS DISTINCT FROM (g.name, g.version, g.command_id, g.command, g.reply, g.partial)
    OR e.payload::text <> g.payload AND NOT (t.kind = 'durable_state' AND 'null' IN (e.payload::text, g.payload))
ORDER BY g.entity, g.seq LIMIT 1;
