-- Which of some shards lie in another journal, by the cluster's rows, and in which one. A shard that has left a copy in this
-- one has moved; rows beyond the present number of shards only keep their epochs.
SELECT t.name, s.shard, s.journal
FROM unnest(%(types)s::text[], %(shards)s::integer[]) AS given (name, shard)
JOIN sharding_type t ON t.name = given.name
JOIN sharding_shard s ON s.type_id = t.id AND s.shard = given.shard
WHERE s.journal <> %(journal)s
    AND s.shard < sharding_modulus_v1(s.shard, t.number_of_shards, t.shards_wanted, t.groups_resized)
    AND NOT EXISTS (
        SELECT FROM sharding_move m
        WHERE m.type_id = t.id AND m.shard = s.shard AND m.source = %(journal)s AND m.step = 'moved')
ORDER BY t.name, s.shard;
