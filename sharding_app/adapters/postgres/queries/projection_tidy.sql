-- What is left of a fill and of failures once the positions have passed it. A version whose fill is through in all
-- journals takes the place of the former one.
WITH held AS (
    DELETE FROM sharding_held h USING sharding_position p
    WHERE h.projection_id = %(id)s AND p.projection_id = %(id)s AND p.journal = h.journal AND h.slice BETWEEN p.first_slice AND p.last_slice
        AND h.until <= pg_snapshot_xmin(p.position)
), through AS MATERIALIZED (
    SELECT %(journals)s::text[] <@ array_agg(p.journal) AND bool_and(p.fill_type IS NULL AND p.fill_until IS NULL) AS is_so
    FROM sharding_position p WHERE p.projection_id = %(id)s
), filled AS (
    DELETE FROM sharding_filled f USING through WHERE f.projection_id = %(id)s AND through.is_so
), mine AS MATERIALIZED (
    -- One below a version that lives is filled as well, and waits for its place until that one is removed: a node with
    -- former code may have made it again.
    SELECT r.id, r.name, NOT EXISTS (
        SELECT FROM sharding_projection o WHERE o.name = r.name AND o.version > r.version AND o.live) AS is_latest
    FROM sharding_projection r, through
    WHERE r.id = %(id)s AND NOT r.live AND r.live_at IS NULL AND through.is_so
), former AS (
    UPDATE sharding_projection o SET live = false
    FROM mine
    WHERE mine.is_latest AND o.name = mine.name AND o.id <> mine.id AND o.live
)
UPDATE sharding_projection r SET live = mine.is_latest, live_at = now()
FROM mine
WHERE r.id = mine.id;
