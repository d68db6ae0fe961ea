INSERT INTO sharding_snapshot (type_id, entity, seq, shard, epoch, state)
SELECT * FROM unnest(
    %(types)s::integer[], %(entities)s::text[], %(seqs)s::bigint[], %(shards)s::integer[], %(epochs)s::bigint[],
    %(states)s::json[])
ON CONFLICT (type_id, entity, seq) DO UPDATE
    SET shard = EXCLUDED.shard, epoch = EXCLUDED.epoch, state = EXCLUDED.state, at = now();
