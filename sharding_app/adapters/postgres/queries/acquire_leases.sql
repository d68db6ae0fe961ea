-- A holder without a row may have been taken for dead and live: it handles on for less than a node's TTL (`node_ttl`). Its
-- lease ends then, counted from when it is first asked for.
WITH asked AS (
    INSERT INTO sharding_lease AS l (name, owner, token, acquired_at, expires_at)
    SELECT name, %(owner)s, 1, clock_timestamp(), clock_timestamp() + %(ttl)s * interval '1 second'
    FROM unnest(%(names)s::text[]) AS name
    ORDER BY name
    ON CONFLICT (name) DO UPDATE SET (owner, token, acquired_at, expires_at) = (
        SELECT
            CASE WHEN free THEN excluded.owner ELSE l.owner END,
            CASE WHEN free THEN l.token + 1 ELSE l.token END,
            CASE WHEN free THEN clock_timestamp() ELSE l.acquired_at END,
            clock_timestamp() + CASE WHEN free THEN %(ttl)s ELSE %(node_ttl)s END * interval '1 second'
        FROM (VALUES (
            l.owner IS NULL OR l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
        )) AS lease (free)
    )
    WHERE l.owner IS NULL OR l.owner = excluded.owner OR l.expires_at <= clock_timestamp()
        OR (l.expires_at > clock_timestamp() + %(node_ttl)s * interval '1 second'
            AND NOT EXISTS (SELECT FROM sharding_node n WHERE n.incarnation = l.owner))
    RETURNING l.name, l.token, l.owner
)
SELECT name, token FROM asked WHERE owner = %(owner)s;
