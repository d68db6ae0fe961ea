SELECT name
FROM sharding_renew_leases_v1(%(names)s::text[], %(tokens)s::bigint[], %(known)s::text[], %(owner)s, %(ttl)s);
