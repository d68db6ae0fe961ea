-- An operator deletes messages and timers. As `operator_run`.
WITH held AS MATERIALIZED (
    SELECT m.id
    FROM sharding_message m
    WHERE m.id = ANY (%(ids)s)
    ORDER BY m.id
    FOR UPDATE
)
DELETE FROM sharding_message m
USING held, sharding_type t
WHERE m.id = held.id AND t.id = m.type_id
RETURNING m.id, t.name, m.entity, m.type_id, m.shard, m.epoch IS NULL;
