-- The first of these events in whose place the journal has another one. As in import_events.sql, and nothing is stored.
SELECT format('event %%s of %%L is another one there', g.seq, g.entity)
FROM unnest(
    %(entities)s::text[], %(seqs)s::bigint[], %(names)s::text[], %(versions)s::integer[], %(payloads)s::text[],
    %(command_ids)s::text[], %(commands)s::text[], %(replies)s::bytea[], %(partials)s::boolean[])
    AS g (entity, seq, name, version, payload, command_id, command, reply, partial)
JOIN sharding_event e ON e.type_id = %(type_id)s AND e.entity = g.entity AND e.seq = g.seq
WHERE (e.name, e.version, e.payload::text, e.command_id, e.command, e.reply, e.partial)
    IS DISTINCT FROM (g.name, g.version, g.payload, g.command_id, g.command, g.reply, g.partial)
ORDER BY g.entity, g.seq LIMIT 1;
