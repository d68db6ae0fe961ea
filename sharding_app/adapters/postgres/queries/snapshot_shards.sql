-- Shards of the present configuration. A row of a shard that is not at home on a node with a row says how old it is.
SELECT t.name, s.shard, s.epoch, s.home, s.step,
    CASE WHEN s.step <> 'home' OR n.incarnation IS NULL
        THEN extract(epoch FROM clock_timestamp() - s.updated_at)::float8 END
FROM sharding_shard s
JOIN sharding_type t ON t.id = s.type_id
LEFT JOIN sharding_node n ON n.incarnation = s.home
WHERE s.shard < t.number_of_shards
ORDER BY s.type_id, s.shard;
