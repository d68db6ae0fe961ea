-- Only what a kept snapshot covers goes, only from the front, and never the entity's last events: its number survives.
-- One piece of it at a time. While the first event is recent, only that one is read.
-- What a projection has not seen stays: all transactions below its position are behind it, unless that is one of another
-- server, from which this database was restored. An event's own transaction is
-- known by its last 32 bits; it is at most as young as the youngest one with these. An import puts old events back in a
-- young transaction, in front of others: an event that has to stay keeps all behind it.
WITH seen AS MATERIALIZED (
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
), held AS MATERIALIZED (
    SELECT min(h.next) AS next FROM sharding_held h, seen
    WHERE h.until IS NULL AND h.type_id = %(type_id)s AND h.entity = %(entity)s
), first AS MATERIALIZED (
    SELECT e.at < clock_timestamp() - %(window)s * interval '1 second' AS is_old
    FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
    ORDER BY e.seq LIMIT 1
), front AS MATERIALIZED (
    SELECT e.seq, e.at < clock_timestamp() - %(window)s * interval '1 second'
        AND NOT EXISTS (
            SELECT FROM seen
            WHERE seen.present - ((seen.present - e.xmin::text::bigint) & 4294967295) >= seen.below) AS may_go
    FROM sharding_event e
    WHERE (SELECT is_old FROM first) AND e.type_id = %(type_id)s AND e.entity = %(entity)s
        AND e.seq < least(
            %(before)s,
            (SELECT s.seq FROM sharding_snapshot s
                WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s
                ORDER BY s.seq LIMIT 1) + 1,
            (SELECT newest.seq FROM sharding_event newest
                WHERE newest.type_id = %(type_id)s AND newest.entity = %(entity)s
                ORDER BY newest.seq DESC LIMIT 1) - %(keep)s + 1)
        AND e.seq < coalesce((SELECT next FROM held), 9223372036854775807)
    ORDER BY e.seq LIMIT %(limit)s
), deleted AS (
    DELETE FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
        AND EXISTS (
            SELECT FROM sharding_snapshot s WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s)
        AND e.seq >= (SELECT min(seq) FROM front)
        AND e.seq <= (SELECT max(seq) FROM front)
        AND e.seq < COALESCE((SELECT min(seq) FROM front WHERE NOT may_go), 9223372036854775807)
    RETURNING e.seq
)
SELECT count(*), min(seq), max(seq) FROM deleted;
