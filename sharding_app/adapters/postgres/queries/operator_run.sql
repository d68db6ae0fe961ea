-- An operator lets messages and timers go out now, or parked ones (`parked`) once more. A target that takes one at the same
-- moment is waited for: then the row is gone.
-- A message gets back the place that it had in the order of its owner and its target: it is due since it was stored.
WITH held AS MATERIALIZED (
    SELECT m.id
    FROM sharding_message m
    WHERE m.id = ANY (%(ids)s) AND m.parked = %(parked)s
    ORDER BY m.id
    FOR UPDATE
)
UPDATE sharding_message m
SET parked = false, failures = 0, error = '',
    due = CASE
        WHEN m.key IS NULL THEN least(m.due, m.at)
        WHEN m.parked THEN clock_timestamp()
        ELSE least(m.due, clock_timestamp())
    END,
    occasion = CASE WHEN m.every IS NOT NULL AND m.parked THEN COALESCE(m.occasion, m.due) ELSE m.occasion END
FROM held, sharding_type t
WHERE m.id = held.id AND t.id = m.type_id
RETURNING m.id, t.name, m.entity, m.type_id, m.shard, m.epoch IS NULL;
