SELECT type, shard, target FROM sharding_open_lapsed_v1(%(term)s);
