INSERT INTO sharding_lease AS l (name, owner, token, acquired_at, expires_at)
SELECT name, %(owner)s, 1, clock_timestamp(), clock_timestamp() + %(ttl)s * interval '1 second'
FROM unnest(%(names)s::text[]) AS name
ORDER BY name
ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner, token = l.token + 1, acquired_at = clock_timestamp(),
        expires_at = clock_timestamp() + %(ttl)s * interval '1 second'
    WHERE l.owner IS NULL OR l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
        OR NOT EXISTS (SELECT FROM sharding_node n WHERE n.incarnation = l.owner)
RETURNING l.name, l.token;
