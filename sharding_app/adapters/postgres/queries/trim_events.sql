-- Only what a kept snapshot covers goes, only from the front, and never the entity's last event: its number survives.
-- One piece of it at a time. While the first event is recent, only that one is read.
WITH first AS MATERIALIZED (
    SELECT e.at < clock_timestamp() - %(window)s * interval '1 second' AS is_old
    FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
    ORDER BY e.seq LIMIT 1
), front AS MATERIALIZED (
    SELECT e.seq, e.at < clock_timestamp() - %(window)s * interval '1 second' AS is_old
    FROM sharding_event e
    WHERE (SELECT is_old FROM first) AND e.type_id = %(type_id)s AND e.entity = %(entity)s
        AND e.seq < least(
            %(before)s,
            (SELECT s.seq FROM sharding_snapshot s
                WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s
                ORDER BY s.seq LIMIT 1) + 1,
            (SELECT newest.seq FROM sharding_event newest
                WHERE newest.type_id = %(type_id)s AND newest.entity = %(entity)s
                ORDER BY newest.seq DESC LIMIT 1))
    ORDER BY e.seq LIMIT %(limit)s
), deleted AS (
    DELETE FROM sharding_event e
    WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
        AND EXISTS (
            SELECT FROM sharding_snapshot s WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s)
        AND e.seq >= (SELECT min(seq) FROM front)
        AND e.seq <= (SELECT max(seq) FROM front)
        AND e.seq < COALESCE((SELECT min(seq) FROM front WHERE NOT is_old), 9223372036854775807)
    RETURNING 1
)
SELECT count(*) FROM deleted;
