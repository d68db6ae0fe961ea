-- Marks of some shards behind an id, in the order of their ids.
SELECT t.id, t.type_id, t.shard, t.journal, t.partial,
    greatest(extract(epoch FROM clock_timestamp() - t.at), 0)::double precision
FROM unnest(%(types)s::integer[], %(shards)s::integer[]) AS asked (type_id, shard)
CROSS JOIN LATERAL (
    SELECT t.*
    FROM sharding_taken t
    WHERE t.type_id = asked.type_id AND t.shard = asked.shard AND t.id COLLATE "POSIX" > %(after)s
    ORDER BY t.id COLLATE "POSIX"
    LIMIT %(limit)s
) t
ORDER BY t.id
LIMIT %(limit)s;
