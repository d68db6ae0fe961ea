-- Only what a kept snapshot covers goes, only from the front, and never the entity's last event: its number survives.
WITH kept AS MATERIALIZED (
    SELECT s.seq FROM sharding_snapshot s
    WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s
    ORDER BY s.seq DESC LIMIT greatest(%(keep)s, 1)
), forgotten AS (
    DELETE FROM sharding_snapshot s
    WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s AND s.seq < (SELECT min(seq) FROM kept)
)
DELETE FROM sharding_event e
WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
    AND e.seq < least(
        %(before)s,
        (SELECT min(seq) FROM kept) + 1,
        (SELECT max(newest.seq) FROM sharding_event newest
            WHERE newest.type_id = %(type_id)s AND newest.entity = %(entity)s),
        (SELECT recent.seq FROM sharding_event recent
            WHERE recent.type_id = %(type_id)s AND recent.entity = %(entity)s
                AND recent.at >= clock_timestamp() - %(window)s * interval '1 second'
            ORDER BY recent.seq LIMIT 1))
    AND EXISTS (SELECT FROM kept);
