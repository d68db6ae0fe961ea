-- In a further journal: its server, and what is behind each of these positions, counted as far as a limit.
SELECT s.system_identifier::text, p.first_slice::integer,
    coalesce(behind.events, 0)::bigint, coalesce(behind.rows, 0) >= %(most)s,
    coalesce(extract(epoch FROM clock_timestamp() - behind.since), 0)::float8
FROM pg_control_system() s
CROSS JOIN (
    SELECT given.first AS first_slice, given.last AS last_slice, given.position::pg_snapshot AS position
    FROM unnest(%(firsts)s::integer[], %(lasts)s::integer[], %(positions)s::text[]) AS given (first, last, position)
) p
CROSS JOIN LATERAL (
    SELECT sum(new.events) AS events, count(*) AS rows, min(new.at) FILTER (WHERE new.events > 0) AS since
    FROM (
        SELECT c.at, (
            SELECT sum(e.last - e.first + 1) FROM unnest(c.slices, c.firsts, c.lasts) AS e (slice, first, last)
            WHERE e.slice BETWEEN p.first_slice AND p.last_slice AND NOT c.erased) AS events
        FROM sharding_change c
        WHERE c.type_id = ANY (%(types)s::integer[]) AND c.xid >= pg_snapshot_xmin(p.position)
            AND NOT pg_visible_in_snapshot(c.xid, p.position)
        LIMIT %(most)s
    ) new
) behind;
