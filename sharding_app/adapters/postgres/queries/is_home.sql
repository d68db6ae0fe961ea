-- The given homes that are in the rows of their shards, by their place.
SELECT w.place
FROM unnest(%(types)s::int[], %(shards)s::int[], %(epochs)s::bigint[], %(homes)s::text[])
    WITH ORDINALITY AS w(type_id, shard, epoch, home, place)
JOIN sharding_shard s
    ON s.type_id = w.type_id AND s.shard = w.shard AND s.epoch = w.epoch AND s.home = w.home;
