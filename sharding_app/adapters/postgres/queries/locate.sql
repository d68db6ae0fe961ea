SELECT sharding_locate_v1(%(type)s, %(shards)s::integer[], %(nodes)s::text[]);
