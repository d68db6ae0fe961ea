-- A new version begins with a fill. Its types are followed by now, so its snapshot, or a change, has each of their events.
-- Changes of another server, from which this database was restored, go: they would come with each turn until the numbers of
-- this one reach theirs. The fill reads their events.
-- Who lets a type go locks its row, and looks for projections behind that: either it finds this one, or nothing is made here.
WITH followed AS MATERIALIZED (
    SELECT t.id FROM sharding_type t
    WHERE t.id = ANY (%(types)s::integer[]) AND t.followed
    ORDER BY t.id
    FOR SHARE
), strange AS (
    DELETE FROM sharding_change c
    WHERE c.type_id = ANY (%(types)s::integer[]) AND c.xid >= pg_snapshot_xmax(pg_current_snapshot())
), made AS (
    INSERT INTO sharding_projection (name, version, type_ids, server)
    SELECT %(name)s, %(version)s, %(types)s::integer[], system_identifier::text FROM pg_control_system()
    WHERE (SELECT count(*) FROM followed) = cardinality(%(types)s::integer[])
    ON CONFLICT (name, version) DO NOTHING
    RETURNING id, type_ids
)
INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, fill_type)
SELECT made.id, 0, 127, pg_current_snapshot(), made.type_ids[1] FROM made;
