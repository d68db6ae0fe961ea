-- The newest value always stays, whatever the number says.
DELETE FROM sharding_event e
WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s
    AND e.seq < least(%(before)s, (
        SELECT max(newest.seq) FROM sharding_event newest
        WHERE newest.type_id = %(type_id)s AND newest.entity = %(entity)s))
    AND e.at < clock_timestamp() - %(window)s * interval '1 second';
