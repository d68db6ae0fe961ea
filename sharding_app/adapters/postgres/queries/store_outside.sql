-- A message or a timer from outside belongs to its target, and no epoch fences it: its home is not asked.
-- Its place in the order is the time at which it was stored.
INSERT INTO sharding_message
    (id, type_id, shard, entity, epoch, seq, position, target_type, target, command, args, due, key)
VALUES (
    %(id)s, %(type_id)s, %(shard)s, %(target)s, NULL,
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, 0, %(target_type)s, %(target)s, %(command)s, %(args)s,
    coalesce(%(at)s::timestamptz, clock_timestamp() + make_interval(secs => %(delay)s)), %(key)s)
RETURNING id;
