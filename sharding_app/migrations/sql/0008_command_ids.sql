-- For ids that callers gave: others begin with a question mark, are asked for only after a failover, and cost nothing here.
-- A hash of entity and id is short, and no other index can be mistaken for this one when the query is planned.
CREATE INDEX CONCURRENTLY IF NOT EXISTS sharding_event_command
    ON @schema@.sharding_event (hashtextextended(command_id, hashtextextended(entity, type_id)))
    WHERE NOT starts_with(command_id, '?');
