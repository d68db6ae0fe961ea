-- What is left of a fill and of failures once the positions have passed it. A version whose fill is through in all
-- journals takes its place.
WITH held AS (
    DELETE FROM sharding_held h USING sharding_position p
    WHERE h.projection_id = %(id)s AND p.projection_id = %(id)s AND p.journal = h.journal AND h.slice BETWEEN p.first_slice AND p.last_slice
        AND h.until <= pg_snapshot_xmin(p.position)
), through AS MATERIALIZED (
    SELECT %(journals)s::text[] <@ array_agg(p.journal) AND bool_and(p.fill_type IS NULL AND p.fill_until IS NULL) AS is_so
    FROM sharding_position p WHERE p.projection_id = %(id)s
), filled AS (
    DELETE FROM sharding_filled f USING through WHERE f.projection_id = %(id)s AND through.is_so
), former AS (
    UPDATE sharding_projection o SET live = false
    FROM sharding_projection r, through
    WHERE r.id = %(id)s AND NOT r.live AND r.live_at IS NULL AND through.is_so AND o.name = r.name AND o.id <> r.id AND o.live
)
UPDATE sharding_projection r SET live = true, live_at = now()
FROM through
WHERE r.id = %(id)s AND NOT r.live AND r.live_at IS NULL AND through.is_so;
