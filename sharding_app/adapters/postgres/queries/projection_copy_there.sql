-- In a further journal: how far a projection has come by the cluster's rows, for what is deleted here. A copy from before
-- the positions began anew comes too late, and changes nothing.
WITH mine AS (
    UPDATE sharding_following f SET passed = greatest(f.passed, (
        SELECT min(pg_snapshot_xmin(given.position::pg_snapshot)::text::bigint)::text::xid8
        FROM unnest(%(positions)s::text[]) AS given (position)))
    WHERE f.projection_id = %(id)s AND f.journal = '' AND f.began = %(began)s::text::xid8
    RETURNING f.projection_id
), gone AS (
    DELETE FROM sharding_position p USING mine
    WHERE p.projection_id = mine.projection_id AND p.first_slice <> ALL (%(firsts)s::integer[])
), copied AS (
    INSERT INTO sharding_position AS p (projection_id, first_slice, last_slice, position, fill_type)
    SELECT mine.projection_id, n.first, n.last, n.position::pg_snapshot, n.fill_type
    FROM mine
    CROSS JOIN unnest(%(firsts)s::integer[], %(lasts)s::integer[], %(positions)s::text[], %(fill_types)s::integer[])
        AS n (first, last, position, fill_type)
    ON CONFLICT (projection_id, journal, first_slice) DO UPDATE SET
        last_slice = EXCLUDED.last_slice, position = EXCLUDED.position, fill_type = EXCLUDED.fill_type, at = clock_timestamp()
), goes_on AS (
    DELETE FROM sharding_held h USING mine
    WHERE h.projection_id = mine.projection_id AND NOT EXISTS (
        SELECT FROM unnest(%(types)s::integer[], %(entities)s::text[]) AS w (type_id, entity)
        WHERE w.type_id = h.type_id AND w.entity = h.entity)
), waits AS (
    INSERT INTO sharding_held AS h (projection_id, type_id, entity, slice, next)
    SELECT mine.projection_id, w.type_id, w.entity, w.slice, w.next
    FROM mine
    CROSS JOIN unnest(%(types)s::integer[], %(entities)s::text[], %(slices)s::integer[], %(nexts)s::bigint[])
        AS w (type_id, entity, slice, next)
    ON CONFLICT (projection_id, type_id, entity) DO UPDATE SET next = EXCLUDED.next
)
SELECT count(*) FROM mine;
