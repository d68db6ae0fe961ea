-- Was this row committed. The epoch tells our own row from one that the shard's next home has written with this number. The
-- rest tells it from one of a former life of the entity, which is back if a failover has lost its erasure.
-- If it was, a small write follows in the same transaction. Its commit comes later in the log than the row's, so that its
-- wait for a synchronous standby covers the row's: there is an answer only when the standby has both. A row that is
-- not there needs no proof, and nothing is written.
SELECT found.yes, CASE WHEN found.yes THEN pg_logical_emit_message(true, 'sharding', 'settled')::text END
FROM (
    SELECT EXISTS (
        SELECT FROM sharding_event
        WHERE type_id = %(type_id)s AND entity = %(entity)s AND seq = %(seq)s AND epoch = %(epoch)s
            AND name = %(name)s AND command_id IS NOT DISTINCT FROM %(command_id)s::text
            AND %(payload)s::text IN ('', payload::text)
    ) AS yes
) AS found;
