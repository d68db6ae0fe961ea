-- The epochs and homes of some shards of a type, or of all that lie in a journal.
SELECT s.shard, s.epoch, s.home
FROM sharding_shard s
WHERE s.type_id = %(type_id)s
    AND (%(shards)s::integer[] IS NULL OR s.shard = ANY (%(shards)s::integer[]))
    AND (%(journal)s::text IS NULL OR s.journal = %(journal)s)
ORDER BY s.shard;
