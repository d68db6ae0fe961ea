DELETE FROM sharding_snapshot s
WHERE s.type_id = %(type_id)s AND s.entity = %(entity)s
    AND s.seq < (SELECT min(kept.seq) FROM (
        SELECT newest.seq FROM sharding_snapshot newest
        WHERE newest.type_id = %(type_id)s AND newest.entity = %(entity)s
        ORDER BY newest.seq DESC LIMIT greatest(%(keep)s, 1)) AS kept);
