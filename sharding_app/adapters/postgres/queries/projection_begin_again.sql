-- A fill from the start. Changes that another server has left there would come again once this one's numbers reach theirs:
-- the fill reads their events. Those with lower numbers are behind the position, and other projections may go on with them.
WITH elsewhere AS MATERIALIZED (
    SELECT r.id FROM sharding_projection r, pg_control_system() s
    WHERE r.id = %(id)s AND r.server <> s.system_identifier::text
), changes AS (
    DELETE FROM sharding_change c WHERE EXISTS (SELECT FROM elsewhere) AND c.type_id = ANY (%(types)s::integer[])
        AND c.xid >= pg_snapshot_xmax(pg_current_snapshot())
), mended AS (
    UPDATE sharding_projection SET type_ids = %(types)s::integer[], server = (SELECT system_identifier::text FROM pg_control_system())
    WHERE id = %(id)s
)
INSERT INTO sharding_position (projection_id, first_slice, last_slice, position, fill_type)
VALUES (%(id)s, 0, 127, pg_current_snapshot(), (%(types)s::integer[])[1]);
