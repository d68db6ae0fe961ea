-- From now on these shards lie in another journal: all of them, or the caller takes it back.
WITH switched AS (
    UPDATE sharding_shard s SET journal = %(target)s, followed = t.followed, updated_at = clock_timestamp()
    FROM unnest(%(shards)s::integer[], %(epochs)s::bigint[]) AS known (shard, epoch), sharding_move m, sharding_type t
    WHERE s.type_id = %(type_id)s AND s.shard = known.shard AND s.epoch = known.epoch AND s.home IS NULL
        AND s.journal = %(source)s AND m.type_id = s.type_id AND m.shard = s.shard AND m.step = 'closed'
        AND t.id = s.type_id AND t.shards_wanted = 0
    RETURNING s.type_id, s.shard
), moved AS (
    UPDATE sharding_move m SET step = 'moved', closed_until = NULL, at = clock_timestamp()
    FROM switched WHERE m.type_id = switched.type_id AND m.shard = switched.shard
), counted AS (
    UPDATE sharding_type t SET closings = t.closings + 1 WHERE t.id = %(type_id)s
), noted AS (
    INSERT INTO sharding_decision (action, subject, detail)
    SELECT 'shards_moved', t.name,
        format('%%s from %%s to %%s, by %%s', array_to_string(%(shards)s::integer[], ', '), %(from)s::text, %(to)s::text, %(by)s::text)
    FROM sharding_type t WHERE t.id = %(type_id)s
)
SELECT count(*) FROM switched;
