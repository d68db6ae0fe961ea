-- Positions in a further journal begin with a fill. Where there are some, only what is agreed with it begins anew.
WITH agreed AS (
    INSERT INTO sharding_following AS f (projection_id, journal, server, began)
    VALUES (%(id)s, %(journal)s, %(server)s, %(began)s::text::xid8)
    ON CONFLICT (projection_id, journal) DO UPDATE SET server = EXCLUDED.server, began = EXCLUDED.began, lost = false
), kept AS (
    UPDATE sharding_position SET secured = NULL WHERE projection_id = %(id)s AND journal = %(journal)s RETURNING 1
)
INSERT INTO sharding_position (projection_id, journal, first_slice, last_slice, position, fill_type)
SELECT %(id)s, %(journal)s, 0, 127, %(view)s::pg_snapshot, (%(types)s::integer[])[1]
WHERE NOT EXISTS (SELECT FROM kept);
