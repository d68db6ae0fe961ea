-- Which snapshots entities have that are no older than a moment, as times stand in a file; '': all of them.
SELECT p.entity, p.seq
FROM sharding_snapshot p
WHERE p.type_id = %(type_id)s AND p.entity = ANY (%(entities)s)
    AND p.at >= coalesce(nullif(%(since)s, '')::timestamptz, '-infinity');
