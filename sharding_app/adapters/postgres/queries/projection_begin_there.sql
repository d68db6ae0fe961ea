-- In a further journal: a version begins. Its types are followed by now, so the snapshot that comes back, or a change, has
-- each of their events. Its copied position lets nothing be deleted until the cluster's own is copied. As in
-- projection_register.sql, nothing is made where a type was just let go.
WITH followed AS MATERIALIZED (
    SELECT t.id FROM sharding_type t
    WHERE t.id = ANY (%(types)s::integer[]) AND t.followed
    ORDER BY t.id
    FOR SHARE
), strange AS (
    -- Of another server, from which this database was restored: they would come again once the numbers reach theirs.
    DELETE FROM sharding_change c
    WHERE c.type_id = ANY (%(types)s::integer[]) AND c.xid >= pg_snapshot_xmax(pg_current_snapshot())
), made AS (
    INSERT INTO sharding_projection (id, name, version, type_ids, server)
    SELECT %(id)s, %(name)s, %(version)s, %(types)s::integer[], system_identifier::text FROM pg_control_system()
    WHERE (SELECT count(*) FROM followed) = cardinality(%(types)s::integer[])
    RETURNING id, type_ids, server
), following AS (
    INSERT INTO sharding_following (projection_id, server, began)
    SELECT made.id, made.server, pg_current_xact_id() FROM made
    RETURNING server, began
), copied AS (
    INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, fill_type)
    SELECT made.id, 0, 127, pg_current_snapshot(), made.type_ids[1] FROM made
)
SELECT server, began::text::bigint, pg_current_snapshot()::text FROM following;
