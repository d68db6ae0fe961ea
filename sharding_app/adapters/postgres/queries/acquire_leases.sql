SELECT name, token FROM sharding_acquire_leases_v1(%(names)s::text[], %(owner)s, %(ttl)s, %(node_ttl)s);
