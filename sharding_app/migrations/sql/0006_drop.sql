ALTER TABLE @schema@.sharding_coordinator DROP COLUMN lineage;
ALTER TABLE @schema@.sharding_node DROP COLUMN server_system;
