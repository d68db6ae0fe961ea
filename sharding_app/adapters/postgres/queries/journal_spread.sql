-- Rows for shards of a type that have none yet, each in its journal. They have never had a home. Nor are they to become one
-- with others: a resize waits for the type's row, and sees them, or none is made here.
WITH held AS MATERIALIZED (
    SELECT t.id, t.followed FROM sharding_type t
    WHERE t.id = %(type_id)s AND t.shards_wanted = 0 AND t.number_of_shards = %(number)s
    FOR SHARE
)
INSERT INTO sharding_shard (type_id, shard, epoch, step, followed, journal)
SELECT t.id, given.shard, 1, 'stopped', t.followed, given.journal
FROM unnest(%(shards)s::integer[], %(journals)s::text[]) AS given (shard, journal)
CROSS JOIN held t
ORDER BY given.shard
ON CONFLICT DO NOTHING;
