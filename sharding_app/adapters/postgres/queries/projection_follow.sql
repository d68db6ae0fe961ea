SELECT sharding_follow_v1(%(types)s::integer[], %(wanted)s);
