-- Messages that were stored from outside by a transaction that knew a former number of shards. No home reads those of a
-- shard that there is no more. The present number divides the former one.
UPDATE sharding_message m SET shard = m.shard % beyond.number
FROM sharding_type t
CROSS JOIN LATERAL (
    SELECT least(t.number_of_shards, nullif(t.shards_wanted, 0)) AS number
) beyond
WHERE t.uses_messages AND t.shards_revision > 0 AND m.type_id = t.id AND m.shard >= beyond.number
    AND m.shard >= sharding_modulus_v1(m.shard, t.number_of_shards, t.shards_wanted, t.groups_resized);
