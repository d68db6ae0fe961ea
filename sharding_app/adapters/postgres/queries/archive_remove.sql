-- Removes an entity that stands in a closed file, all of it at once, or tells why it stays. No row: the shard has another
-- epoch. A delete fires no fence, so the shard's row is locked and compared here. Projections learn nothing: their rows stay.
-- They must have passed all of it (as in trim_events.sql), and keep no number of it: a new life begins with event 1. Rows that
-- a move has copied, or an import has put back, are younger than a position that nothing new moves on: what a projection has
-- yet to see is in a change too, unless it is in its first fill.
WITH held AS MATERIALIZED (
    SELECT s.type_id AS id
    FROM sharding_shard s
    WHERE s.type_id = %(type_id)s AND s.shard = %(shard)s AND s.epoch = %(epoch)s
    FOR SHARE
), events AS MATERIALIZED (
    SELECT count(*), min(e.seq) AS first, max(e.seq) AS last, max(e.at) AS at
    FROM sharding_event e WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
), snapshots AS MATERIALIZED (
    SELECT count(*), max(s.seq) AS last
    FROM sharding_snapshot s WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s
), remembered AS MATERIALIZED (
    SELECT count(*)
    FROM sharding_remembered r
    WHERE r.type_id = %(type_id)s AND r.shard = %(present)s AND r.entity = %(entity)s
), seen AS MATERIALIZED (
    SELECT p.below, pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS present
    FROM sharding_type t
    CROSS JOIN LATERAL (
        SELECT min(CASE WHEN o.fill_type IS NULL AND r.server = (SELECT system_identifier::text FROM pg_control_system())
            THEN pg_snapshot_xmin(o.position)::text::bigint ELSE 0 END) AS below
        FROM sharding_projection r
        JOIN sharding_position o ON o.projection_id = r.id AND o.journal = ''
        WHERE t.id = ANY (r.type_ids)
    ) p
    WHERE t.id = %(type_id)s AND t.followed
), decided AS MATERIALIZED (
    SELECT CASE
        WHEN events.count + snapshots.count = 0 THEN 'gone'
        WHEN format('%%s %%s-%%s %%s, %%s %%s, %%s',
            events.count, events.first, events.last, to_char(events.at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
            snapshots.count, snapshots.last, remembered.count) <> %(mark)s THEN 'changed'
        WHEN EXISTS (
            SELECT FROM sharding_message m
            WHERE m.type_id = %(type_id)s AND m.entity = %(entity)s
                AND m.shard = ANY (%(present)s || sharding_former_shards_v1(%(type_id)s, %(entity)s))) THEN 'messages'
        WHEN EXISTS (SELECT FROM sharding_held h WHERE h.type_id = %(type_id)s AND h.entity = %(entity)s)
            OR EXISTS (
                SELECT FROM seen, sharding_event e
                WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
                    AND seen.present - ((seen.present - e.xmin::text::bigint) & 4294967295) >= seen.below
                    AND (seen.below = 0 OR EXISTS (
                        SELECT FROM sharding_change c
                        WHERE c.type_id = %(type_id)s AND c.xid >= seen.below::text::xid8
                            AND %(entity)s = ANY (c.entities)))) THEN 'projections'
        ELSE '' END AS reason
    FROM held, events, snapshots, remembered
), may AS MATERIALIZED (
    SELECT reason FROM decided WHERE reason = ''
), gone_events AS (
    DELETE FROM sharding_event e USING may WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s RETURNING 1
), gone_snapshots AS (
    DELETE FROM sharding_snapshot s USING may WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s RETURNING 1
), gone_remembered AS (
    DELETE FROM sharding_remembered r USING may
    WHERE r.type_id = %(type_id)s AND r.shard = %(present)s AND r.entity = %(entity)s RETURNING 1
)
SELECT (SELECT count(*) FROM gone_events), (SELECT count(*) FROM gone_snapshots), (SELECT count(*) FROM gone_remembered),
    decided.reason
FROM decided;
