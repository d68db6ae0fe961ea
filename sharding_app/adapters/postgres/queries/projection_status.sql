-- Versions of projections and their positions, each with what is behind it and what waits, counted as far as a limit. What
-- is behind those of further journals is asked there: with their transactions, and the servers that these were of.
SELECT r.id, r.name, r.version, r.live, r.paused, r.server = s.system_identifier::text,
    p.first_slice, p.last_slice, p.events, p.fill_type IS NOT NULL, p.fill_after, p.at,
    coalesce(behind.events, 0)::bigint, coalesce(behind.rows, 0) >= %(most)s,
    coalesce(extract(epoch FROM clock_timestamp() - behind.since), 0)::float8,
    waiting.count, waiting.parked, p.journal, p.position::text, r.type_ids, f.server, coalesce(f.lost, false)
FROM sharding_projection r
JOIN sharding_position p ON p.projection_id = r.id
LEFT JOIN sharding_following f ON f.projection_id = r.id AND f.journal = p.journal
CROSS JOIN pg_control_system() s
CROSS JOIN LATERAL (
    SELECT sum(new.events) AS events, count(*) AS rows, min(new.at) FILTER (WHERE new.events > 0) AS since
    FROM (
        SELECT c.at, (
            SELECT sum(e.last - e.first + 1) FROM unnest(c.slices, c.firsts, c.lasts) AS e (slice, first, last)
            WHERE e.slice BETWEEN p.first_slice AND p.last_slice AND NOT c.erased) AS events
        FROM sharding_change c
        WHERE p.journal = '' AND c.type_id = ANY (r.type_ids) AND c.xid >= pg_snapshot_xmin(p.position)
            AND NOT pg_visible_in_snapshot(c.xid, p.position)
        LIMIT %(most)s
    ) new
) behind
CROSS JOIN LATERAL (
    SELECT
        (SELECT count(*) FROM (
            SELECT FROM sharding_held h
            WHERE h.projection_id = r.id AND h.journal = p.journal AND h.slice BETWEEN p.first_slice AND p.last_slice
                AND h.until IS NULL
            LIMIT %(most)s) found) AS count,
        (SELECT count(*) FROM (
            SELECT FROM sharding_held h
            WHERE h.projection_id = r.id AND h.journal = p.journal AND h.slice BETWEEN p.first_slice AND p.last_slice
                AND h.parked
            LIMIT %(most)s) found) AS parked
) waiting
WHERE %(name)s::text IS NULL OR r.name = %(name)s
ORDER BY r.name, r.version, p.journal, p.first_slice;
