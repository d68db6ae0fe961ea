SELECT sharding_unstash_v1(%(type_id)s, %(shards)s::integer[]);
