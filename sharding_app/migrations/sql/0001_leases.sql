-- Leases of shards and singletons. The time of a node's leases is one column of its row, so a renewal is one small write,
-- however many leases there are. Two statements each, as functions: the second one sees what the first has waited for.

-- Free leases are taken: those without an owner, and those whose owner's time is over. The rows of such owners are locked
-- first, so that they cannot prolong it meanwhile, and in one order with our own.
-- An owner without a row may have been taken for dead and live: it handles on for less than a node's TTL (`node_ttl`). Its
-- lease ends then, counted from when it is first asked for. So does one of a process that never had a row, after its time.
CREATE FUNCTION @schema@.sharding_acquire_leases_v1(
    names text[], me text, ttl double precision, node_ttl double precision
) RETURNS TABLE (name text, token bigint) LANGUAGE plpgsql AS $acquire$
#variable_conflict use_column
DECLARE
    late text[];
    ends_at timestamptz;
BEGIN
    SELECT COALESCE(array_agg(locked.incarnation), '{}') INTO late FROM (
        SELECT n.incarnation
        FROM @schema@.sharding_node n
        WHERE n.incarnation = me OR (n.leases_until <= clock_timestamp() AND n.incarnation IN (
            SELECT l.owner FROM @schema@.sharding_lease l WHERE l.name = ANY (names)
        ))
        ORDER BY n.incarnation
        FOR NO KEY UPDATE
    ) locked;
    UPDATE @schema@.sharding_node n SET leases_until = clock_timestamp() + ttl * interval '1 second' WHERE n.incarnation = me;
    IF NOT FOUND THEN
        ends_at := clock_timestamp() + ttl * interval '1 second';
    END IF;
    RETURN QUERY
        WITH asked AS (
            INSERT INTO @schema@.sharding_lease AS l (name, owner, token, acquired_at, expires_at)
            SELECT wanted.name, me, 1, clock_timestamp(), ends_at
            FROM unnest(names) AS wanted (name)
            ORDER BY wanted.name COLLATE "C"
            ON CONFLICT (name) DO UPDATE
            SET owner = me, token = l.token + 1, acquired_at = clock_timestamp(), expires_at = ends_at
            WHERE l.owner IS NULL OR l.owner = me OR l.owner = ANY (late) OR l.expires_at <= clock_timestamp()
            RETURNING l.name, l.token
        )
        SELECT asked.name, asked.token FROM asked;
    -- All these rows are locked by now, also those of others. This statement sees each owner that has taken one meanwhile.
    UPDATE @schema@.sharding_lease l SET expires_at = clock_timestamp() + node_ttl * interval '1 second'
    WHERE l.name = ANY (names) AND l.owner <> me
        AND (l.expires_at IS NULL OR l.expires_at > clock_timestamp() + node_ttl * interval '1 second')
        AND NOT EXISTS (SELECT FROM @schema@.sharding_node n WHERE n.incarnation = l.owner);
END
$acquire$;

-- The time of all leases of an owner is prolonged, and those that are still its own are answered. So are those that it does
-- not know (`known`): a request took them that was executed after its owner had given them back. Nothing is freed here, since
-- this may be executed late too: the owner gives them back by their tokens.
CREATE FUNCTION @schema@.sharding_renew_leases_v1(
    names text[], tokens bigint[], known text[], me text, ttl double precision, forgotten_after double precision
) RETURNS TABLE (name text, token bigint) LANGUAGE plpgsql AS $renew$
#variable_conflict use_column
BEGIN
    UPDATE @schema@.sharding_node n SET leases_until = clock_timestamp() + ttl * interval '1 second' WHERE n.incarnation = me;
    IF FOUND THEN
        RETURN QUERY
            SELECT l.name, l.token
            FROM unnest(names, tokens) AS held (name, token)
            JOIN @schema@.sharding_lease l ON l.name = held.name AND l.token = held.token
            WHERE l.owner = me AND l.expires_at IS NULL
            UNION ALL
            SELECT l.name, l.token
            FROM @schema@.sharding_lease l
            WHERE l.owner = me AND l.acquired_at < clock_timestamp() - forgotten_after * interval '1 second'
                AND NOT EXISTS (SELECT FROM unnest(known) AS of_ours (name) WHERE of_ours.name = l.name);
    END IF;
END
$renew$;
