DROP INDEX CONCURRENTLY IF EXISTS @schema@.sharding_event_command;
