-- Shards that are to move to another journal. The type's row is held: no resize begins before these rows are seen, and none
-- may be under way. A shard that lies there already, or that moves already, is left out.
WITH held AS MATERIALIZED (
    SELECT id FROM sharding_type
    WHERE id = %(type_id)s AND shards_wanted = 0
    FOR NO KEY UPDATE
)
INSERT INTO sharding_move (type_id, shard, source, target, step)
SELECT s.type_id, s.shard, s.journal, %(target)s, 'copying'
FROM held JOIN sharding_shard s ON s.type_id = held.id
WHERE s.shard = ANY (%(shards)s::integer[]) AND s.journal <> %(target)s
ORDER BY s.shard
ON CONFLICT DO NOTHING
RETURNING shard;
