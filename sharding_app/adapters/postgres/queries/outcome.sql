-- Reads back from the newest event to the first one that is too old, and no further: no index on the command's id,
-- which every append would pay for.
SELECT e.seq, e.command, e.reply, e.partial
FROM sharding_event e
WHERE e.type_id = %(type_id)s AND e.entity = %(entity)s AND e.command_id = %(command_id)s
    AND e.seq > COALESCE((
        SELECT older.seq FROM sharding_event older
        WHERE older.type_id = %(type_id)s AND older.entity = %(entity)s
            AND older.at < clock_timestamp() - %(age_ms)s * interval '1 millisecond'
        ORDER BY older.seq DESC LIMIT 1), 0)
ORDER BY e.seq DESC
LIMIT 1;
