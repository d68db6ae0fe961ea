-- Locks the type's shards until the piece is committed, so that none is given a home meanwhile: true if none has one.
SELECT coalesce(bool_and(s.home IS NULL), true)
FROM (SELECT home FROM sharding_shard WHERE type_id = %(type_id)s ORDER BY shard FOR SHARE) s;
