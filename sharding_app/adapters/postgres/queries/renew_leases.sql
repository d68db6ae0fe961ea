SELECT name, token
FROM sharding_renew_leases_v1(
    %(names)s::text[], %(tokens)s::bigint[], %(known)s::text[], %(owner)s, %(ttl)s, %(forgotten_after)s
);
