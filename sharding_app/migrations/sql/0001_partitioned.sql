-- Where the settings say so, the journal is partitioned by type from the beginning. It is empty here, and no type is known:
-- sharding_partition_type makes the partitions.
CREATE TABLE @schema@.sharding_event_next (LIKE @schema@.sharding_event INCLUDING ALL EXCLUDING INDEXES)
    PARTITION BY LIST (type_id);
DROP TABLE @schema@.sharding_event;
ALTER TABLE @schema@.sharding_event_next RENAME TO sharding_event;
ALTER TABLE @schema@.sharding_event ADD PRIMARY KEY (type_id, entity, seq);
CREATE INDEX sharding_event_command
    ON @schema@.sharding_event (hashtextextended(command_id, hashtextextended(entity, type_id)))
    WHERE NOT starts_with(command_id, '?');
CREATE INDEX sharding_event_at ON @schema@.sharding_event USING brin (at) WITH (autosummarize = on);
CREATE TRIGGER sharding_fence AFTER INSERT ON @schema@.sharding_event
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
CREATE TRIGGER sharding_fence_update AFTER UPDATE ON @schema@.sharding_event
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION @schema@.sharding_fence_v1();
