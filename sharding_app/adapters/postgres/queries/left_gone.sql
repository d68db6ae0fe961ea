-- All that was stored of a type is deleted, copies that shards have left behind too.
DELETE FROM sharding_move m WHERE m.type_id = %(type_id)s AND m.step = 'moved' RETURNING m.shard;
