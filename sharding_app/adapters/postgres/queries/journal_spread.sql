-- Rows for shards of a type that have none yet, each in its journal. They have never had a home.
INSERT INTO sharding_shard (type_id, shard, epoch, step, followed, journal)
SELECT t.id, given.shard, 1, 'stopped', t.followed, given.journal
FROM unnest(%(shards)s::integer[], %(journals)s::text[]) AS given (shard, journal)
JOIN sharding_type t ON t.id = %(type_id)s
ORDER BY given.shard
ON CONFLICT DO NOTHING;
