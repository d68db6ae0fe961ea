UPDATE sharding_lease l SET expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
FROM (
    SELECT h.name FROM sharding_lease h
    JOIN unnest(%(names)s::text[], %(tokens)s::bigint[]) AS held (name, token) USING (name, token)
    WHERE h.owner = %(owner)s AND EXISTS (SELECT FROM sharding_node n WHERE n.incarnation = h.owner)
    ORDER BY h.name FOR NO KEY UPDATE OF h
) mine
WHERE l.name = mine.name
RETURNING l.name;
