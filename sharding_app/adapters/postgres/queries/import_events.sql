-- Events at the present epochs of their shards. Those that are there already are compared instead: the first that differs is
-- returned. Of a former value of a durable state the payload may be forgotten, here or in the file (forget_states.sql).
WITH given AS MATERIALIZED (
    SELECT unnest(%(entities)s::text[]) AS entity, unnest(%(seqs)s::bigint[]) AS seq, unnest(%(shards)s::integer[]) AS shard,
        unnest(%(names)s::text[]) AS name, unnest(%(versions)s::integer[]) AS version,
        unnest(%(payloads)s::text[]) AS payload, unnest(%(command_ids)s::text[]) AS command_id,
        unnest(%(commands)s::text[]) AS command, unnest(%(replies)s::bytea[]) AS reply,
        unnest(%(partials)s::boolean[]) AS partial, unnest(%(ats)s::timestamptz[]) AS at
), stored AS (
    INSERT INTO sharding_event (
        type_id, entity, seq, shard, epoch, name, version, payload, command_id, command, reply, partial, at)
    SELECT s.type_id, g.entity, g.seq, g.shard, s.epoch, g.name, g.version, g.payload::json, g.command_id, g.command,
        g.reply, g.partial, g.at
    FROM given g JOIN sharding_shard s ON s.type_id = %(type_id)s AND s.shard = g.shard
    ORDER BY g.entity, g.seq
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT (SELECT count(*) FROM stored), (
    SELECT format('event %%s of %%L is another one there', g.seq, g.entity)
    FROM given g JOIN sharding_event e ON e.type_id = %(type_id)s AND e.entity = g.entity AND e.seq = g.seq
    JOIN sharding_type t ON t.id = e.type_id
    WHERE (e.name, e.version, e.command_id, e.command, e.reply, e.partial)
            IS DISTINCT FROM (g.name, g.version, g.command_id, g.command, g.reply, g.partial)
        OR e.payload::text <> g.payload AND NOT (t.kind = 'durable_state' AND 'null' IN (e.payload::text, g.payload))
    ORDER BY g.entity, g.seq LIMIT 1);
